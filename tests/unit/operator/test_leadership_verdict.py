"""What counts as a late request, a stale write, and a write of a leader that was only woken."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.leadership_verdict import (
    Request,
    late_requests,
    read_requests,
    stale_writes,
    woken_writes,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
DURATION = 10.0


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def request(
    user: str, seconds: float, resource: str = "deployments", *, code: int = 200, took: float = 0.1
) -> Request:
    return Request(
        user=user,
        received=at(seconds),
        answered=at(seconds + took),
        verb="patch",
        resource=resource,
        name="n/x",
        code=code,
    )


def renewal(user: str, seconds: float, *, code: int = 200, took: float = 0.1) -> Request:
    return request(user, seconds, "leases", code=code, took=took)


@pytest.mark.parametrize(
    ("story", "late"),
    [
        ([renewal("a", 0), request("a", 1)], 0),
        # Within the lease, after it, and after a renewal that was refused.
        ([renewal("a", 0), request("a", 9.9)], 0),
        ([renewal("a", 0), request("a", 10.1)], 1),
        ([renewal("a", 0), renewal("a", 8, code=409), request("a", 10.1)], 1),
        ([renewal("a", 0), renewal("a", 8), request("a", 17)], 0),
        # Another has taken over, even if the sender's own lease has not run out.
        ([renewal("a", 0), renewal("b", 2), request("a", 3)], 1),
        ([renewal("a", 0), renewal("b", 2), request("b", 3)], 0),
        # Before the answer nobody knows of it.
        ([renewal("a", 0), renewal("b", 2, took=5), request("a", 3), request("b", 3)], 1),
        # Nobody has ever led.
        ([request("a", 1)], 1),
        # The election itself is judged by its own preconditions.
        ([renewal("a", 0), renewal("b", 2), renewal("a", 3, code=409)], 0),
    ],
)
def test_a_request_is_late_when_its_senders_lease_is_over(story: list[Request], late: int) -> None:
    assert len(late_requests(story, duration_s=DURATION)) == late
    assert len(late_requests(reversed(story), duration_s=DURATION)) == late


def test_a_late_write_that_took_effect_is_stale() -> None:
    accepted, event = request("a", 1), request("a", 2, "events", code=201)
    late = [accepted, event, request("a", 3, code=409), request("a", 4, code=504)]
    assert stale_writes(late) == [accepted]


def test_a_woken_replica_looks_at_the_lease_before_it_writes() -> None:
    before, after = request("a", 1), request("a", 5, code=409)
    story = [before, after, request("b", 5), renewal("a", 6), request("a", 7)]
    assert woken_writes(story, [("a", at(4))]) == [after]
    # A renewal that was refused is no look that allows anything.
    refused = [renewal("a", 4.5, code=409), after]
    assert woken_writes(refused, [("a", at(4))]) == [after]
    assert woken_writes([before, renewal("a", 6), request("a", 7)], [("a", at(4))]) == []


def test_the_log_is_read_for_the_replicas_alone(tmp_path: Path) -> None:
    def line(user: str, verb: str, resource: str, seconds: float) -> bytes:
        event = {
            "verb": verb,
            "user": {"username": user},
            "objectRef": {"resource": resource, "namespace": "n", "name": "x"},
            "responseStatus": {"code": 200},
            "requestReceivedTimestamp": at(seconds).isoformat(),
            "stageTimestamp": at(seconds + 0.1).isoformat(),
        }
        return json.dumps(event, separators=(",", ":")).encode() + b"\n"

    log = tmp_path / "audit.log"
    first = line("a", "patch", "deployments", 0)
    log.write_bytes(
        first
        + line("a", "update", "leases", 3)
        + line("a", "patch", "deployments", 2)
        + line("a", "get", "deployments", 2)
        + line("a", "create", "tokenreviews", 2)
        + line("c", "patch", "deployments", 2)
    )
    found = read_requests(log, users=["a", "b"], since=len(first))
    assert [(one.resource, one.received) for one in found] == [
        ("deployments", at(2)),
        ("leases", at(3)),
    ]
