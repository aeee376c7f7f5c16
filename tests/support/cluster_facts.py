"""What a kubelet would say of a pod, and what an API server's audit log tells."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

IMAGE = "registry.test/fleetward-engine:1"


def running(address: str, *, ready: bool = True, restarts: int = 0) -> dict[str, Any]:
    """The status of a pod whose engine runs at an address."""
    return {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "Ready", "status": "True" if ready else "False"},
        ],
        "containerStatuses": [
            {
                "name": "engine",
                "image": IMAGE,
                "imageID": "sha256:1",
                "ready": ready,
                "started": True,
                "restartCount": restarts,
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            }
        ],
    }


def ended(address: str, *, exit_code: int = 0) -> dict[str, Any]:
    """The status of a pod whose container ended, in the kubelet's words."""
    status = running(address, ready=False)
    status["containerStatuses"][0]["state"] = {
        "terminated": {
            "exitCode": exit_code,
            "reason": "Completed" if exit_code == 0 else "Error",
            "finishedAt": "2026-01-01T00:00:05Z",
        },
    }
    return status


def condition(item: dict[str, Any], kind: str) -> dict[str, Any]:
    """A condition of an object's status; empty when it is not there."""
    for one in item.get("status", {}).get("conditions", []):
        if one["type"] == kind:
            return dict(one)
    return {}


def writes_in(audit_log: Path, *, since: int = 0, user: str = "") -> list[dict[str, Any]]:
    """Writes in an audit log from a byte offset on: our own, but for the lease and reviews."""
    with audit_log.open("rb") as log:
        log.seek(since)
        events = [json.loads(line) for line in log if line.strip()]
    return [
        event
        for event in events
        if event["verb"] in {"create", "update", "patch", "delete"}
        and event["objectRef"].get("resource") not in {"leases", "tokenreviews"}
        and (not user or event["user"]["username"] == user)
    ]


def secret(name: str, namespace: str, **data: str) -> dict[str, Any]:
    """A Secret manifest."""
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "data": encoded,
    }
