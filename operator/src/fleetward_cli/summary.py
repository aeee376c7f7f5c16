"""Objects of our kinds in short: what a person asks first, as rows and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

KubeObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """How one kind is shown.

    ``columns`` are heading and JSON key of what is shown between name and message.
    """

    plural: str
    title: str
    columns: tuple[tuple[str, str], ...]


SERVICES = Kind(
    "inferenceservices",
    "Services",
    (
        ("READY", "ready"),
        ("REASON", "reason"),
        ("REPLICAS", "replicas"),
        ("MODEL", "model"),
        ("POLICY", "policyEnforced"),
    ),
)
POLICIES = Kind(
    "cachepolicies",
    "Policies",
    (("READY", "ready"), ("REASON", "reason"), ("ENFORCED", "enforced")),
)
TENANTS = Kind("tenants", "Tenants", (("READY", "ready"), ("REASON", "reason"), ("KEYS", "keys")))
PURGES = Kind(
    "cachepurges",
    "Purges",
    (("TENANT", "tenant"), ("PHASE", "phase"), ("PROVED", "proved"), ("BLOCKS", "blocks")),
)
KINDS = (SERVICES, POLICIES, TENANTS, PURGES)


def summarize(kind: Kind, item: KubeObject) -> dict[str, Any]:
    """One object in short; an absent fact is an empty string."""
    metadata, spec, status = (item.get(part) or {} for part in ("metadata", "spec", "status"))
    ready = find_condition(status, "Ready")
    common = {
        "namespace": metadata.get("namespace", ""),
        "name": metadata.get("name", ""),
        "ready": ready.get("status", ""),
        "reason": ready.get("reason", ""),
    }
    tail = {"message": status.get("message", ""), "conditions": status.get("conditions", [])}
    return {**common, **_facts(kind, spec, status), **tail}


def _facts(kind: Kind, spec: KubeObject, status: KubeObject) -> dict[str, Any]:
    if kind is SERVICES:
        return {
            "replicas": status.get("replicaSummary", ""),
            "model": (spec.get("model") or {}).get("name", ""),
            "policyEnforced": find_condition(status, "CachePolicyEnforced").get("status", ""),
            "url": status.get("url", ""),
        }
    if kind is POLICIES:
        return {"enforced": of(status, "enforcedServices", "services")}
    if kind is TENANTS:
        return {"keys": of(status, "readyKeys", "keys")}
    return {
        "tenant": spec.get("tenant", ""),
        "phase": status.get("phase", ""),
        "proved": of(status, "provedMembers", "members"),
        "blocks": status.get("blocks", 0),
        "widenedTo": status.get("widenedTo", ""),
        "evidenceDigest": status.get("evidenceDigest", ""),
    }


def of(status: KubeObject, part: str, whole: str) -> str:
    """Two counts as `part/whole`."""
    return f"{status.get(part, 0)}/{status.get(whole, 0)}"


def find_condition(status: KubeObject, kind: str) -> KubeObject:
    """The condition of this type, or an empty one."""
    conditions = status.get("conditions") or ()
    return next((entry for entry in conditions if entry.get("type") == kind), {})


def troubled(summary: dict[str, Any]) -> list[str]:
    """What of the conditions is worth a line of its own: whatever says that something is wrong."""
    bad = {"Ready": "False", "Degraded": "True", "Stalled": "True", "CachePolicyEnforced": "False"}
    return [
        f"{entry.get('type')}={entry.get('status')} ({entry.get('reason', '')}): "
        f"{entry.get('message', '')}"
        for entry in summary["conditions"]
        if bad.get(str(entry.get("type"))) == entry.get("status")
    ]


def to_row(kind: Kind, summary: dict[str, Any]) -> list[str]:
    """The object as a row of the kind's table."""
    name = "/".join(part for part in (summary["namespace"], summary["name"]) if part)
    facts = [str(summary[key]) for _, key in kind.columns]
    lines = [summary["message"], *(line for line in troubled(summary) if not_said(line, summary))]
    return [name, *facts, "\n".join(filter(None, lines))]


def not_said(line: str, summary: dict[str, Any]) -> bool:
    """Whether a condition's line adds to the object's own message."""
    return not (summary["message"] and line.endswith(f": {summary['message']}"))
