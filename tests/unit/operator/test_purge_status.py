"""What the status says while members are asked, and how often it is written."""

from __future__ import annotations

import asyncio
import datetime as dt
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fleetward_api.resources import CachePurge, CachePurgeStatus
from fleetward_api.scope import Scope
from fleetward_operator.core.purge.events import Acked, CutMade, Died
from fleetward_operator.core.purge.state import Member, PurgeState
from fleetward_operator.edges.evidence_store import StoredEvidence
from fleetward_operator.edges.purge_crew import Answer
from fleetward_operator.edges.purge_record import PurgeRecord
from fleetward_operator.handlers import purge as handler
from fleetward_operator.handlers.context import Operator
from fleetward_operator.handlers.purge import RETRY_S, reconcile_purge

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def members(count: int) -> tuple[Member, ...]:
    return tuple(
        Member(kind="engine", namespace="n", name=f"e{n}", uid=f"u{n}") for n in range(count)
    )


class World:
    """An operator's parts for one purge. `asking` is awaited by each member that is asked."""

    def __init__(self, *, count: int = 2, deaf: tuple[str, ...] = ()) -> None:
        self.item: dict[str, Any] = {
            "apiVersion": "fleetward.io/v1alpha1",
            "kind": "CachePurge",
            "metadata": {"name": "wipe", "uid": "p", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"tenant": "alpha", "reason": "r"},
        }
        self.count, self.deaf = count, deaf
        self.kept: PurgeState | None = None
        self.writes = 0
        self.told: list[CachePurgeStatus] = []
        self.asked = asyncio.Event()
        self.purging = asyncio.Event()
        self.answer = asyncio.Event()
        self.answer.set()
        self.op = SimpleNamespace(
            clock=SimpleNamespace(now=lambda: NOW, wall=NOW.timestamp),
            fleet=SimpleNamespace(keys=SimpleNamespace(digest=b"k" * 32), bundles=list),
            settings=SimpleNamespace(identity=SimpleNamespace(namespace="r")),
            store=SimpleNamespace(get=lambda *_: self.item, in_namespace=lambda *_: []),
            records=SimpleNamespace(recall=self.recall, write=self.write, remove=self.nothing),
            holds=SimpleNamespace(hold=self.nothing, release=self.nothing),
            events=SimpleNamespace(announce=self.nothing),
            statuses=SimpleNamespace(write=self.tell),
            evidence=SimpleNamespace(store=self.store),
            crew=SimpleNamespace(
                make_cut=self.cut,
                fence=self.fence,
                ask_receipts=self.ask,
                look=self.look,
                policies=lambda _: (),
            ),
        )

    async def run(self) -> float | None:
        return await reconcile_purge(cast("Operator", self.op), "wipe")

    async def nothing(self, *_: Any, **__: Any) -> None:
        return None

    async def recall(self, _: str) -> PurgeRecord | None:
        if self.kept is None:
            return None
        return PurgeRecord(name="wipe", scope=Scope("alpha"), state=self.kept, item=self.item)

    async def write(self, _uid: str, _name: str, state: PurgeState, **_: Any) -> None:
        self.kept = state
        self.writes += 1

    async def tell(self, item: Any, *, after: CachePurgeStatus, **_: Any) -> None:
        if after != CachePurge.parse(item).status:
            self.told.append(after)
            if after.phase == "Purging":
                self.purging.set()
            self.item = {**self.item, "status": after.to_manifest()}

    async def store(self, *_: Any) -> StoredEvidence:
        return StoredEvidence(digest="sha256:" + "0" * 64, names=("e",))

    async def cut(self, _: Any) -> CutMade:
        return CutMade(cut=1, floor=1, resource_version="1", members=members(self.count))

    async def fence(self, _: Any, uids: tuple[str, ...]) -> list[Answer]:
        acks = {uid: None if uid in self.deaf else Acked(uid=uid, floors_version=1) for uid in uids}
        return [Answer(uid, ack) for uid, ack in acks.items()]

    async def ask(self, _state: Any, uids: tuple[str, ...], _purge: Any) -> list[Answer]:
        self.asked.set()
        await self.answer.wait()
        return [Answer(uid, Died(uid=uid, words="it ended", at="")) for uid in uids]

    async def look(self, _: Any) -> list[Any]:
        return []

    @property
    def phases(self) -> list[str | None]:
        return [status.phase for status in self.told]


async def test_members_that_answer_at_once_cost_no_further_write() -> None:
    world = World()
    assert await world.run() is None
    assert world.phases == ["Fencing", "Completed"]


async def test_a_status_says_purging_while_members_remove(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "SHOW_AFTER_S", 0.01)
    world = World()
    world.answer.clear()
    running = asyncio.create_task(world.run())
    await world.asked.wait()
    async with asyncio.timeout(30):
        await world.purging.wait()
    assert world.kept is not None
    assert world.kept.phase == "Purging", "the next leader would tell an earlier phase"
    world.answer.set()
    assert await running is None
    assert world.phases == ["Fencing", "Purging", "Completed"]


async def test_a_member_that_is_awaited_hides_no_progress_and_costs_no_storm() -> None:
    world = World(count=5, deaf=("u0",))
    for _ in range(20):
        assert await world.run() == RETRY_S
    assert world.phases == ["Fencing", "Fencing"]
    assert (world.told[0].proved_members, world.told[1].proved_members) == (0, 4)
    world.deaf = ()
    assert await world.run() is None
    assert world.phases[2:] == ["Completed"]


async def test_a_long_wait_in_one_phase_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "SHOW_AFTER_S", 0.0)
    world = World(count=3, deaf=("u0",))
    for _ in range(5):
        world.answer.clear()
        running = asyncio.create_task(world.run())
        await asyncio.sleep(0.02)
        world.answer.set()
        await running
    assert len(world.told) == 2
    assert world.writes == 3, "the cut, the acks of the others, their answers"
