"""Who wrote while who held the lease: a verdict on an audit log, never on our own logs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

WRITES = frozenset({"create", "update", "patch", "delete"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One write that reached the API server: who, when, of what, and whether it was accepted."""

    user: str
    received: datetime
    answered: datetime
    verb: str
    resource: str
    name: str
    code: int

    @property
    def accepted(self) -> bool:
        """Whether it took effect."""
        return 200 <= self.code < 300

    @property
    def of_lease(self) -> bool:
        """Whether it is the election itself."""
        return self.resource == "leases"


def read_requests(log: Path, *, users: Iterable[str], since: int = 0) -> list[Request]:
    """The writes of these users from a byte offset on, in the order of their arrival."""
    marks = [f'"{user}"'.encode() for user in users]
    with log.open("rb") as lines:
        lines.seek(since)
        events = [json.loads(line) for line in lines if any(mark in line for mark in marks)]
    found = [_request(event) for event in events if event["verb"] in WRITES]
    # TokenReviews and the like ask a question and change nothing.
    kept = [one for one in found if not one.resource.endswith("reviews")]
    return sorted(kept, key=lambda one: one.received)


def late_requests(requests: Iterable[Request], *, duration_s: float) -> list[Request]:
    """Those that arrived when their sender's lease had run out, or was another's.

    Whose the lease is, the writes of it that were accepted tell: from the answer of each on, for
    `duration_s` from its arrival on.
    """
    ordered = sorted(requests, key=lambda one: one.received)
    terms = sorted(
        (one for one in ordered if one.of_lease and one.accepted), key=lambda one: one.answered
    )
    late = []
    for request in ordered:
        if request.of_lease:
            continue
        before = [one for one in terms if one.answered <= request.received]
        holder = before[-1] if before else None
        held_until = holder.received + timedelta(seconds=duration_s) if holder else None
        ours = holder is not None and holder.user == request.user
        if not ours or held_until is None or request.received > held_until:
            late.append(request)
    return late


def stale_writes(late: Iterable[Request]) -> list[Request]:
    """Late requests that took effect. An Event is a record of the past and changes nothing."""
    return [one for one in late if one.accepted and one.resource != "events"]


def woken_writes(
    requests: Iterable[Request], wakings: Iterable[tuple[str, datetime]]
) -> list[Request]:
    """Writes that a replica sent after it was woken, before it had looked at the lease again.

    It looks by reading, which is no write: so any write of its own before its next accepted write
    of the lease counts. `wakings` are (user, when).
    """
    ordered = sorted(requests, key=lambda one: one.received)
    found = []
    for user, woken in wakings:
        for request in ordered:
            if request.user != user or request.received <= woken:
                continue
            if request.of_lease and request.accepted:
                break
            if not request.of_lease:
                found.append(request)
    return found


def _request(event: Mapping[str, Any]) -> Request:
    about = event.get("objectRef") or {}
    return Request(
        user=event["user"]["username"],
        received=datetime.fromisoformat(event["requestReceivedTimestamp"]),
        answered=datetime.fromisoformat(event["stageTimestamp"]),
        verb=event["verb"],
        resource=str(about.get("resource", "")),
        name=f"{about.get('namespace', '')}/{about.get('name', '')}",
        code=int((event.get("responseStatus") or {}).get("code", 0)),
    )
