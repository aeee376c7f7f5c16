"""What the API server's audit log says that our own processes wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

_WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True, slots=True)
class Write:
    """One write that reached the API server."""

    at: datetime
    user: str
    verb: str
    resource: str
    name: str


def writes(log: Path, *, users: str, since: datetime, until: datetime) -> Iterator[Write]:
    """Writes by users whose name starts with `users`, in the span; those of leases too."""
    for path in sorted(log.parent.glob(f"{log.stem}*{log.suffix}")):
        for line in path.read_text().splitlines():
            write = _write_of(json.loads(line))
            if write is None or not write.user.startswith(users):
                continue
            if since <= write.at <= until:
                yield write


def _write_of(entry: dict[str, object]) -> Write | None:
    verb = str(entry.get("verb"))
    reference = entry.get("objectRef")
    user = entry.get("user")
    if verb not in _WRITES or not isinstance(reference, dict) or not isinstance(user, dict):
        return None
    received = str(entry["requestReceivedTimestamp"])
    return Write(
        at=datetime.fromisoformat(received),
        user=str(user.get("username")),
        verb=verb,
        resource=str(reference.get("resource")),
        name=f"{reference.get('namespace', '')}/{reference.get('name', '')}",
    )
