"""Purge orders to a whole engine: receipts add up after a full removal, and only then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from fleetward_api.bundle import Deletion
from fleetward_api.floors import Floors
from fleetward_api.receipt import receipt_faults
from fleetward_api.scope import Scope
from fleetward_engine.cache_entry import Entry
from fleetward_engine.engine import Engine
from fleetward_engine.floors_in_force import FloorsInForce
from fleetward_engine.governance import Governance
from fleetward_engine.outputs import Overwritten
from fleetward_engine.prefix_index import PrefixIndex
from tests.support.engine_core import make_request
from tests.support.engine_server import RunningEngine, push, running_engine
from tests.support.eventually import eventually
from tests.support.purge_orders import PROMPT, code_of, order, receipt_of


@pytest_asyncio.fixture
async def engine(tmp_path: Path) -> AsyncIterator[RunningEngine]:
    async with running_engine(tmp_path) as running:
        yield running


async def engine_of(engine: RunningEngine) -> Engine:
    """The engine itself, to watch or to hinder it in its own thread."""
    return await engine.assembly.service.loop.call(lambda core: core)


async def test_a_purge_removes_one_tenant_and_says_so_once(engine: RunningEngine) -> None:
    for tenant in ("a", "b"):
        await engine.cached_tokens(PROMPT, tenant=tenant)
        assert await engine.cached_tokens(PROMPT, tenant=tenant) > 0
    raised = push(2, secret=None, floors=Floors(version=1, tenants={"a": 1}))
    assert (await engine.admin("PUT", "/policy", raised)).status_code == 200
    answers = await asyncio.gather(
        *(engine.admin("POST", "/purge", order("a", 1)) for _ in range(3))
    )
    assert len({answer.content for answer in answers}) == 1
    receipt = receipt_of(engine, answers[0])
    assert receipt_faults(receipt) == []
    assert receipt.removed > 0
    assert receipt.probes == receipt.removed
    assert {tier.tier: tier.method for tier in receipt.tiers} == {
        "index": "dropped", "device": "overwritten",
    }  # fmt: skip
    assert await engine.cached_tokens(PROMPT, tenant="a", floor=1) == 0
    assert await engine.cached_tokens(PROMPT, tenant="a", floor=1) > 0
    assert await engine.cached_tokens(PROMPT, tenant="b") > 0
    again = await engine.admin("POST", "/purge", order("a", 1))
    assert again.content == answers[0].content


async def test_a_purge_of_nothing_is_complete_with_zeros(engine: RunningEngine) -> None:
    receipt = receipt_of(engine, await engine.admin("POST", "/purge", order("nobody", 1)))
    assert receipt_faults(receipt) == []
    assert (receipt.removed, receipt.inserted, receipt.recount) == (0, 0, 0)
    assert all(tier.method == "none" for tier in receipt.tiers)


async def test_an_order_is_not_mistaken_for_another(engine: RunningEngine) -> None:
    receipt_of(engine, await engine.admin("POST", "/purge", order("a", 1)))
    answer = await engine.admin("POST", "/purge", order("b", 1))
    assert code_of(answer) == (409, "purge_conflict")
    finer = order("a", 1, uid="p2", scope=Scope(tenant="a", user="u").to_wire())
    assert code_of(await engine.admin("POST", "/purge", finer)) == (400, "unsupported_scope")


async def test_a_build_that_removes_nothing_owns_up(
    engine: RunningEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await engine.cached_tokens(PROMPT, tenant="a")
    monkeypatch.setattr(
        "fleetward_engine.prefix_index.PrefixIndex.remove_below", lambda *_arguments: []
    )
    receipt = receipt_of(engine, await engine.admin("POST", "/purge", order("a", 1)))
    assert receipt.recount > 0
    assert receipt_faults(receipt)


@pytest.mark.parametrize("in_flight", ["Finish", "Abort"])
async def test_requests_in_flight_finish_or_abort_and_leave_nothing(
    tmp_path: Path, in_flight: Any
) -> None:
    policy = push(deletion=Deletion(in_flight=in_flight))
    async with running_engine(tmp_path, policy=policy, step_ms=5.0) as engine:
        body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 60}
        running = asyncio.create_task(engine.chat(body, tenant="a"))
        other = asyncio.create_task(engine.chat(body, tenant="b"))
        await eventually(lambda: engine.stats.running == 2)
        floors = Floors(version=1, tenants={"a": 1})
        raised = push(2, secret=None, floors=floors, deletion=policy.bundle.deletion)
        assert (await engine.admin("PUT", "/policy", raised)).status_code == 200
        answer = await engine.admin("POST", "/purge", order("a", 1, in_flight=in_flight))
        receipt = receipt_of(engine, answer)
        assert receipt_faults(receipt) == []
        finished, aborted = (1, 0) if in_flight == "Finish" else (0, 1)
        assert (receipt.in_flight_finished, receipt.in_flight_aborted) == (finished, aborted)
        status = (await running).status_code
        assert status == (200 if in_flight == "Finish" else 503)
        assert (await other).status_code == 200
        assert await engine.cached_tokens(PROMPT, tenant="a", floor=1) == 0
        assert await engine.cached_tokens(PROMPT, tenant="b") > 0


async def test_a_stricter_order_than_its_fence_counts_what_it_aborts(tmp_path: Path) -> None:
    async with running_engine(tmp_path, step_ms=5.0) as engine:
        body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 500}
        running = asyncio.create_task(engine.chat(body, tenant="a"))
        await eventually(lambda: engine.stats.running == 1)
        raised = push(2, secret=None, floors=Floors(version=1, tenants={"a": 1}))
        assert (await engine.admin("PUT", "/policy", raised)).status_code == 200
        answer = await engine.admin("POST", "/purge", order("a", 1, in_flight="Abort"))
        receipt = receipt_of(engine, answer)
        assert (receipt.in_flight_finished, receipt.in_flight_aborted) == (0, 1)
        assert (await running).status_code == 503


async def test_a_deadline_aborts_what_does_not_finish(tmp_path: Path) -> None:
    async with running_engine(tmp_path, step_ms=20.0) as engine:
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1500}
        running = asyncio.create_task(engine.chat(body, tenant="a"))
        await eventually(lambda: engine.stats.running == 1)
        short = order("a", 1, deadline_ms=200)
        answer = await engine.admin("POST", "/purge", short)
        while answer.status_code == 504:
            # Its time was over while it was still at work: asking again waits on.
            assert code_of(answer) == (504, "deadline_exceeded")
            answer = await engine.admin("POST", "/purge", short)
        receipt = receipt_of(engine, answer)
        assert (receipt.in_flight_finished, receipt.in_flight_aborted) == (0, 1)
        assert receipt_faults(receipt) == []
        assert (await running).json()["error"]["code"] == "purged"


@pytest.mark.parametrize(("deadline_ms", "arrivals"), [(20_000, 3), (0, 1000)])
async def test_a_late_request_from_before_the_fence_makes_no_purge_incomplete(
    engine: RunningEngine, monkeypatch: pytest.MonkeyPatch, deadline_ms: int, arrivals: int
) -> None:
    core = await engine_of(engine)
    overwrite = core.governance.overwrite
    late = iter(range(arrivals))

    def with_late_arrivals(*arguments: Any, **limits: Any) -> Overwritten:
        # Its token was minted before the fence, and it took until now to come through.
        for number in late:
            request = make_request(
                str(number), range(40), scope=Scope("a"), cached=False, max_tokens=200
            )
            core.add_request(request)
            break
        return overwrite(*arguments, **limits)

    monkeypatch.setattr(core.governance, "overwrite", with_late_arrivals)
    await engine.cached_tokens(PROMPT, tenant="a")
    late_order = order("a", 1, deadline_ms=deadline_ms)
    answer = await engine.admin("POST", "/purge", late_order)
    while answer.status_code == 504:
        answer = await engine.admin("POST", "/purge", late_order)
    receipt = receipt_of(engine, answer)
    assert receipt_faults(receipt) == []
    assert receipt.removed > 0
    # However many come, past its time the purge waits for none of them.
    assert next(late, arrivals) < 10


async def test_what_a_broken_fence_let_in_is_removed_before_the_receipt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FloorsInForce, "shut_out", lambda *_arguments: False)
    async with running_engine(tmp_path, step_ms=5.0) as engine:
        body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 60}
        running = asyncio.create_task(engine.chat(body, tenant="a"))
        await eventually(lambda: engine.stats.running == 1)
        receipt = receipt_of(engine, await engine.admin("POST", "/purge", order("a", 1)))
        assert receipt_faults(receipt) == []
        assert receipt.removed >= 60 // 16
        assert (await running).status_code == 200


def nothing_overwritten(*_arguments: Any, **_limits: Any) -> Overwritten:
    return Overwritten()


def half_removed(index: PrefixIndex, scope: Scope, floor: int) -> list[Entry]:
    del floor
    doomed = [entry for entry in index._entries.values() if entry.owner.scope == scope]
    ends = doomed[: len(doomed) // 2 : -1]
    for entry in ends:
        index.remove(entry, "removed")
    return ends


@pytest.mark.parametrize(
    ("target", "instead"),
    [
        (
            "fleetward_engine.governance.Governance.overwrite",
            lambda *_arguments, **_: Overwritten(),
        ),
        ("fleetward_engine.prefix_index.PrefixIndex.remove_below", half_removed),
    ],
)
async def test_a_build_that_does_half_the_work_owns_up(
    engine: RunningEngine, monkeypatch: pytest.MonkeyPatch, target: str, instead: Any
) -> None:
    await engine.cached_tokens(PROMPT, tenant="a")
    monkeypatch.setattr(target, instead)
    receipt = receipt_of(engine, await engine.admin("POST", "/purge", order("a", 1)))
    assert any("recount still found" in fault for fault in receipt_faults(receipt))


async def test_a_policy_without_overwriting_is_owned_up_to(engine: RunningEngine) -> None:
    await engine.cached_tokens(PROMPT, tenant="a")
    answer = await engine.admin("POST", "/purge", order("a", 1, scrub=False))
    receipt = receipt_of(engine, answer)
    assert receipt_faults(receipt) == []
    device = next(tier for tier in receipt.tiers if tier.tier == "device")
    assert (device.method, device.blocks) == ("dropped", receipt.removed)


async def test_purges_take_turns_and_none_is_begun_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetward_engine.admin.purge.RECEIPTS_KEPT", 1)
    async with running_engine(tmp_path, step_ms=5.0) as engine:
        body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 100}
        running = asyncio.create_task(engine.chat(body, tenant="a"))
        await eventually(lambda: engine.stats.running == 1)
        orders = [order("a", 1, uid="p1"), order("b", 1, uid="p2"), order("a", 1, uid="p1")]
        asked: list[asyncio.Task[httpx.Response]] = []
        for one in orders:
            asked.append(asyncio.create_task(engine.admin("POST", "/purge", one)))
            await asyncio.sleep(0.1)
        first, second, again = await asyncio.gather(*asked)
        assert (await running).status_code == 200
        assert first.content == again.content
        for answer in (first, second):
            receipt = receipt_of(engine, answer)
            assert receipt.sequence_after == receipt.sequence_before + 1


async def test_an_order_below_the_floor_in_force_is_carried_out_at_it(
    engine: RunningEngine,
) -> None:
    raised = push(2, secret=None, floors=Floors(version=1, tenants={"a": 5}))
    assert (await engine.admin("PUT", "/policy", raised)).status_code == 200
    receipt = receipt_of(engine, await engine.admin("POST", "/purge", order("a", 1)))
    assert receipt.floor == 5


async def test_an_order_that_failed_is_carried_out_when_asked_again(
    engine: RunningEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: Any, **_limits: Any) -> None:
        raise RuntimeError("once")

    with monkeypatch.context() as broken:
        broken.setattr(Governance, "overwrite", fail)
        answer = await engine.admin("POST", "/purge", order("a", 1))
        assert code_of(answer) == (500, "internal")
    receipt_of(engine, await engine.admin("POST", "/purge", order("a", 1)))


async def test_overwriting_lets_other_tenants_decode_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetward_engine.admin.purge.CHUNK_BYTES", 1)
    monkeypatch.setattr("fleetward_engine.admin.purge.slice_seconds", lambda _step: 0.0)
    steps_at_slices: list[int] = []
    async with running_engine(tmp_path) as engine:
        core = await engine_of(engine)
        overwrite = core.governance.overwrite

        def watched(*arguments: Any, **limits: Any) -> Overwritten:
            steps_at_slices.append(core.stats().steps)
            return overwrite(*arguments, **limits)

        monkeypatch.setattr(core.governance, "overwrite", watched)
        await engine.cached_tokens(PROMPT * 10, tenant="a")
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1900}
        other = asyncio.create_task(engine.chat(body, tenant="b"))
        await eventually(lambda: engine.stats.running == 1)
        receipt = receipt_of(engine, await engine.admin("POST", "/purge", order("a", 1)))
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
    assert receipt_faults(receipt) == []
    blocks = next(tier.blocks for tier in receipt.tiers if tier.tier == "device")
    assert len(steps_at_slices) == blocks + 1 > 20
    assert steps_at_slices[-1] - steps_at_slices[0] >= blocks // 2
