"""The epoch's rotation: when it is due, who decides, and that one is never made twice."""

from __future__ import annotations

import base64
import datetime as dt
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.resources import CachePolicy, InferenceService
from fleetward_kube import KubeClient, KubeError
from fleetward_operator.core.policy import PolicyChoice, choose_policy
from fleetward_operator.core.salt_rotation import (
    AHEAD_S,
    FirstSight,
    decide_rotation,
    shortest_rotation,
)
from fleetward_operator.edges.metrics import Metrics
from fleetward_operator.edges.release_keys import EPOCH_SECRET, ROTATED_AT, SecretStore
from fleetward_operator.edges.writer import Writer
from fleetward_operator.handlers.context import Operator
from fleetward_operator.handlers.salt_rotation import rotate_when_due
from tests.support.object_api import Killed, ObjectApi
from tests.support.operator_facts import NOW, RULES, policy, service

PATH = f"/api/v1/namespaces/n/secrets/{EPOCH_SECRET}"
DAY_S = 86_400.0


class Clocks:
    """A wall clock and a monotonic one, which a test moves apart."""

    def __init__(self) -> None:
        self.wall = NOW
        self.seconds = 1000.0

    def now(self) -> dt.datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.wall += dt.timedelta(seconds=seconds)
        self.seconds += seconds


class Stage:
    """An operator of one service and its policy, as far as rotations go."""

    def __init__(self, api: ObjectApi, *, rotation: str | None = "24h") -> None:
        self.api = api
        self.clocks = Clocks()
        self.rotation = rotation
        self.namespaces = ("*",)
        self.queued: list[tuple[str, str]] = []
        self.told: list[str] = []

    async def leader(self) -> Operator:
        """A leader that starts: it reads the epoch, or makes the first."""
        client = cast("KubeClient", self.api)
        writer = Writer(client, may_write=lambda: True, metrics=Metrics(), timeout_s=1.0)
        store = SecretStore(
            client,
            writer,
            namespace="n",
            entropy=lambda size: len(self.api.writes).to_bytes(size, "big"),
            now=self.clocks.now,
        )
        epoch = await store.find_epoch() or await store.make_epoch()
        spec = {"saltRotation": self.rotation} if self.rotation else {}
        known = policy("strict", **spec)
        items: dict[str, dict[str, Any]] = {
            "InferenceService": {"apps/demo": {}},
            "CachePolicy": {"apps/strict": {"kind": "CachePolicy"}},
        }

        async def announce(_about: Any, announcement: Any) -> None:
            self.told.append(announcement.reason)

        subject = service(cachePolicyRef={"name": "strict"})
        fleet = SimpleNamespace(epoch=epoch, choice=lambda one: choose_policy(one, [known]))
        return cast(
            "Operator",
            SimpleNamespace(
                clock=self.clocks,
                settings=SimpleNamespace(engine=replace(RULES, namespaces=self.namespaces)),
                secrets=store,
                fleet=fleet,
                epoch_seen=None,
                catalog=SimpleNamespace(service=lambda _key: subject),
                events=SimpleNamespace(announce=announce),
                enqueue=lambda worker, key: self.queued.append((worker, key)),
                store=SimpleNamespace(
                    keys=lambda kind: list(items.get(kind, {})),
                    get=lambda kind, key: items.get(kind, {}).get(key),
                ),
            ),
        )

    @property
    def kept(self) -> tuple[int, str]:
        """The number in the Secret, and its secret as it stands there."""
        data = self.api.objects[PATH]["data"]
        return int(base64.b64decode(data["epoch"])), data["secret"]


def choices(*wanted: str | None) -> list[tuple[str, PolicyChoice]]:
    found: list[tuple[str, PolicyChoice]] = []
    for number, rotation in enumerate(wanted):
        spec = {"saltRotation": rotation} if rotation else {}
        one: CachePolicy = policy(f"p{number}", **spec)
        subject: InferenceService = service(cachePolicyRef={"name": f"p{number}"})
        found.append(("apps", choose_policy(subject, [one])))
    return found


def test_the_shortest_time_of_all_that_are_followed_counts() -> None:
    assert shortest_rotation(choices(None, None)) is None
    found = shortest_rotation(choices("48h", None, "1h30m", "90m", "2h"))
    assert found is not None
    assert (found.policy, found.every, found.every_s) == ("apps/p2", "1h30m", 5400.0)


def test_a_policy_that_is_missing_asks_for_nothing() -> None:
    subject = service(cachePolicyRef={"name": "absent"})
    assert shortest_rotation([("apps", choose_policy(subject, []))]) is None


@given(
    age=st.floats(-1e9, 1e9),
    every=st.floats(3600, 1e9),
    passed=st.floats(0, 1e9),
    at=st.floats(0, 1e9),
)
def test_an_epoch_is_due_at_its_age_and_one_from_the_future_is_dated(
    age: float, every: float, passed: float, at: float
) -> None:
    seen = FirstSight(number=1, age_s=age, at=at)
    due = decide_rotation(seen, every_s=every, monotonic=at + passed)
    if age < -AHEAD_S:
        assert due == "date"
    elif due == "rotate":
        assert age + passed >= every * (1 - 1e-9) - 1e-3
    else:
        assert age + passed < every * (1 + 1e-9) + 1e-3


async def test_a_day_makes_one_rotation_and_everyone_hears_of_it() -> None:
    stage = Stage(ObjectApi())
    op = await stage.leader()
    first = stage.kept[1]
    for _ in range(24):
        await rotate_when_due(op)
        stage.clocks.advance(3600)
    assert stage.kept[0] == 1
    await rotate_when_due(op)
    await rotate_when_due(op)
    number, secret = stage.kept
    assert (number, op.fleet.epoch.number) == (2, 2)
    assert secret != first
    assert stage.told == ["SaltRotated"]
    assert stage.queued == [("service", "apps/demo"), ("policy", "apps/strict")]
    noted = stage.api.objects[PATH]["metadata"]["annotations"][ROTATED_AT]
    assert noted == "2026-01-02T12:00:00Z"


async def test_without_a_policy_that_asks_nothing_is_rotated() -> None:
    stage = Stage(ObjectApi(), rotation=None)
    op = await stage.leader()
    stage.clocks.advance(1000 * DAY_S)
    await rotate_when_due(op)
    assert stage.kept[0] == 1


async def test_a_service_where_none_may_be_empties_nobody_s_cache() -> None:
    stage = Stage(ObjectApi())
    stage.namespaces = ("others",)
    op = await stage.leader()
    stage.clocks.advance(DAY_S)
    await rotate_when_due(op)
    assert stage.kept[0] == 1


@pytest.mark.parametrize("after", [False, True])
async def test_a_leader_killed_at_its_write_leaves_one_rotation_in_all(*, after: bool) -> None:
    stage = Stage(ObjectApi())
    op = await stage.leader()
    stage.clocks.advance(DAY_S)
    stage.api.kill_at, stage.api.after = len(stage.api.writes) + 1, after
    with pytest.raises(Killed):
        await rotate_when_due(op)
    op = await stage.leader()
    await rotate_when_due(op)
    await rotate_when_due(op)
    assert (stage.kept[0], op.fleet.epoch.number) == (2, 2)


async def test_of_two_leaders_one_rotates_and_the_other_takes_it_over() -> None:
    stage = Stage(ObjectApi())
    one, other = await stage.leader(), await stage.leader()
    stage.clocks.advance(DAY_S)
    await rotate_when_due(one)
    await rotate_when_due(other)
    assert stage.kept[0] == 2
    assert one.fleet.epoch.secret == other.fleet.epoch.secret


async def test_a_secret_that_was_touched_or_deleted_or_put_back_is_rotated_all_the_same() -> None:
    stage = Stage(ObjectApi())
    op = await stage.leader()
    first = dict(stage.api.objects[PATH]["data"])
    stage.clocks.advance(DAY_S)
    stage.api.objects[PATH]["metadata"]["resourceVersion"] = "999"
    await rotate_when_due(op)
    assert stage.kept[0] == 2
    stage.clocks.advance(DAY_S)
    stage.api.objects[PATH]["data"] = first
    stage.api.objects[PATH]["metadata"]["resourceVersion"] = "1000"
    await rotate_when_due(op)
    assert stage.kept[0] == 3
    stage.clocks.advance(DAY_S)
    del stage.api.objects[PATH]
    await rotate_when_due(op)
    assert stage.kept[0] == 4


async def test_a_spoilt_secret_is_told_and_not_overwritten() -> None:
    stage = Stage(ObjectApi())
    op = await stage.leader()
    stage.clocks.advance(DAY_S)
    stage.api.objects[PATH]["data"] = {"epoch": "eA=="}
    stage.api.objects[PATH]["metadata"]["resourceVersion"] = "999"
    await rotate_when_due(op)
    assert stage.told == ["KeysUnreadable"]
    assert stage.api.objects[PATH]["data"] == {"epoch": "eA=="}


async def test_an_api_server_that_refuses_is_asked_again() -> None:
    stage = Stage(ObjectApi())
    op = await stage.leader()
    stage.clocks.advance(DAY_S)
    stage.api.away = True
    with pytest.raises(KubeError):
        await rotate_when_due(op)
    stage.api.away = False
    await rotate_when_due(op)
    assert stage.kept[0] == 2


@pytest.mark.parametrize("jump_h", [-1, 1, -10_000, 10_000])
async def test_a_wall_clock_that_jumps_while_an_operator_leads_changes_nothing(jump_h: int) -> None:
    stage = Stage(ObjectApi())
    op = await stage.leader()
    await rotate_when_due(op)
    for hour in range(24):
        stage.clocks.wall += dt.timedelta(hours=jump_h if hour % 2 else -jump_h)
        await rotate_when_due(op)
        stage.clocks.advance(3599)
    assert stage.kept[0] == 1
    stage.clocks.advance(24.0)
    await rotate_when_due(op)
    assert stage.kept[0] == 2


async def test_leaders_with_clocks_far_apart_make_no_storm() -> None:
    stage = Stage(ObjectApi())
    await rotate_when_due(await stage.leader())
    for _ in range(5):
        for jump in (dt.timedelta(days=400), dt.timedelta(days=-400)):
            stage.clocks.wall += jump
            op = await stage.leader()
            for _ in range(3):
                await rotate_when_due(op)
                stage.clocks.advance(1.0)
    # One for each leader that was ahead; those behind it only note that time counts from now.
    assert stage.kept[0] == 6


async def test_a_secret_without_our_date_counts_from_when_it_was_made() -> None:
    stage = Stage(ObjectApi())
    await stage.leader()
    metadata = stage.api.objects[PATH]["metadata"]
    for words in (None, "", "soon", "1999-01-01T00:00:00Z"):
        metadata["annotations"] = {} if words is None else {ROTATED_AT: words}
        metadata["creationTimestamp"] = "2025-12-31T12:00:01Z"
        epoch = (await stage.leader()).fleet.epoch
        assert epoch.rotated_at == NOW - dt.timedelta(seconds=DAY_S - 1)
