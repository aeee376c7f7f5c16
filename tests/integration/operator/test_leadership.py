"""Of two replicas one writes, whatever stops, sleeps, lags or loses its way between changes."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from pathlib import Path

from e2e.chaos.scale import is_full, seed
from e2e.cluster.apiserver import ApiServer
from e2e.figures.record import record
from fleetward_operator.settings import Timings
from tests.support.leadership_stage import Stage
from tests.support.leadership_verdict import (
    Request,
    late_requests,
    read_requests,
    stale_writes,
    woken_writes,
)
from tests.support.operator_world import World, until

KINDS = ("stop", "late", "kill", "term", "cut")
SHORT = Timings(lease_duration=5.0, lease_renew_deadline=3.0, lease_retry=0.8)
QUICK = Timings(lease_duration=7.0, lease_renew_deadline=4.5, lease_retry=0.8)
CHANGES = 100
WITH_THE_REAL_LEASE = ("kill", "stop", "cut", "kill", "stop", "cut", "kill")


async def test_leaders_change_and_nobody_else_writes(
    world: World, api_server: ApiServer, tmp_path: Path
) -> None:
    dice = random.Random(seed())  # noqa: S311 - which fault, and when
    stage = Stage(world, api_server, tmp_path, dice)
    late: list[Request] = []
    stale: list[Request] = []
    woken: list[Request] = []
    real: list[float] = []
    try:
        for timings, kinds in plan(dice):
            if stage.replicas:
                await stage.change_terms(timings)
            else:
                await stage.set_up(timings)
            before = len(stage.takeovers)
            await perform(stage, kinds)
            users = [replica.user for replica in stage.replicas]
            requests = read_requests(api_server.audit_log, users=users, since=stage.since)
            assert_it_sees(requests, users)
            now_late = late_requests(requests, duration_s=timings.lease_duration)
            late += now_late
            stale += stale_writes(now_late)
            woken += woken_writes(requests, stage.wakings)
            if timings == Timings():
                real = stage.takeovers[before:]
    finally:
        await stage.tear_down()
    most = most_in_one_change(stage, late)
    if is_full():
        detail = f"seed {seed()}, {len(late)} late, clocks 10 min wrong, audit log"
        record("leader-changes", len(stage.takeovers), "kill, term, stop, late write, cut line")
        record("leader-late-requests", most, detail)
        record("leader-stale-writes", len(stale), detail)
        record("leader-woken-writes", len(woken), f"{len(stage.wakings)} SIGCONT, audit log")
        record("leader-takeover-seconds", round(max(real), 1), f"{len(real)} with the real lease")
    assert stale == []
    # The line held one back each time: an election that saw none would prove nothing.
    assert late, "no write arrived late"
    # Given back, not run out, unless a write was left without an answer.
    assert min(stage.released) < SHORT.lease_duration, stage.released
    assert woken == []
    if real:
        # A machine that is busy with other tests holds up requests of its own.
        assert most <= 1, late
        assert max(real) <= 20


def plan(dice: random.Random) -> list[tuple[Timings, list[str]]]:
    """Which changes, with which lease."""
    if not is_full():
        return [(SHORT, ["late", "stop", "term", "kill"])]
    quick = [dice.choice(KINDS) for _ in range(CHANGES - len(WITH_THE_REAL_LEASE))]
    return [(QUICK, quick), (Timings(), list(WITH_THE_REAL_LEASE))]


async def perform(stage: Stage, kinds: list[str]) -> None:
    """One change after another, and at the end everything is as it was asked for last."""
    editing = asyncio.create_task(stage.edit())
    try:
        for kind in kinds:
            await stage.change(kind)
    finally:
        editing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await editing
    await until(stage.converged, within_s=60, what="what was asked for last")


def assert_it_sees(requests: list[Request], users: list[str]) -> None:
    """Both replicas have led and worked in these pages of the log."""
    worked = {one.user for one in requests if one.accepted and one.resource == "deployments"}
    assert worked == set(users), Counter((one.user, one.resource) for one in requests)


def most_in_one_change(stage: Stage, late: list[Request]) -> int:
    """The largest number of late requests between one fault and the next."""
    counts = Counter(sum(mark <= request.received for mark in stage.marks) for request in late)
    return max(counts.values(), default=0)
