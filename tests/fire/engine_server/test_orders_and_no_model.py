"""Bundles and purges without a model, which loads still or never will, and beside each other."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from fleetward_api.admin import ModelState
from fleetward_api.bundle import Retention
from fleetward_api.floors import Floors
from fleetward_api.receipt import receipt_faults
from fleetward_engine.admin.policy_desk import PolicyDesk
from fleetward_engine.engine import Engine
from fleetward_engine.errors import ModelUnavailable
from tests.support.engine_server import push, running_engine
from tests.support.purge_orders import PROMPT, code_of, order, receipt_of


@pytest.mark.parametrize("phase", ["loading", "load_failed"])
async def test_without_a_model_bundles_hold_and_purges_find_nothing(
    tmp_path: Path, phase: str
) -> None:
    over = threading.Event()

    def build() -> tuple[Engine, ModelState]:
        if phase == "loading":
            over.wait(60)
        raise ModelUnavailable("file:///nope is not there")

    async with running_engine(
        tmp_path, build=build, loaded=phase == "load_failed", policy=push()
    ) as engine:
        assert engine.assembly.service.phase == phase
        stricter = push(
            2,
            secret=None,
            floors=Floors(version=1, tenants={"a": 1}),
            retention=Retention(idle_ttl_ms=1000),
        )
        for _ in range(2):
            answer = await engine.admin("PUT", "/policy", stricter)
            assert (answer.status_code, answer.json()["generation"]) == (200, 2)
        answers = [await engine.admin("POST", "/purge", order("a", 2)) for _ in range(2)]
        over.set()
        assert answers[0].content == answers[1].content
        receipt = receipt_of(engine, answers[0])
        assert receipt_faults(receipt) == []
        assert (receipt.floor, receipt.removed, receipt.inserted) == (2, 0, 0)


async def test_a_purge_s_floor_stands_although_a_push_that_ran_beside_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way, go_on = asyncio.Event(), asyncio.Event()

    async def wait_and_fail(*_arguments: object, **_facts: object) -> None:
        under_way.set()
        await go_on.wait()
        raise RuntimeError("once")

    async with running_engine(tmp_path) as engine:
        await engine.cached_tokens(PROMPT, floor=0)
        raised = push(2, secret=None, floors=Floors(version=1, tenants={"a": 4, "b": 7}))
        with monkeypatch.context() as broken:
            broken.setattr(PolicyDesk, "_limit", wait_and_fail)
            pushing = asyncio.create_task(engine.admin("PUT", "/policy", raised))
            await under_way.wait()
            # One below the pushed floor is carried out at it, and one above at its own.
            receipts = [
                receipt_of(engine, await engine.admin("POST", "/purge", one))
                for one in (order("a", 2), order("c", 3, uid="purge-2"))
            ]
            go_on.set()
            assert code_of(await pushing) == (500, "internal")
        assert [receipt.floor for receipt in receipts] == [4, 3]
        policy = engine.assembly.service.policy
        assert policy is not None
        assert policy.bundle.generation == 1
        assert policy.floors.tenants == {"a": 4, "c": 3}
        assert (await engine.admin("PUT", "/policy", raised)).status_code == 200
        policy = engine.assembly.service.policy
        assert policy is not None
        assert policy.floors.tenants == {"a": 4, "b": 7, "c": 3}
