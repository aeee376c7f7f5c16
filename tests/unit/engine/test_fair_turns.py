"""Turns at the one thread that reads schemas: fair between tenants, and never lost."""

from __future__ import annotations

import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_engine.grammar import Grammar, GrammarCompiler
from fleetward_engine.server.errors import ApiError
from fleetward_engine.server.fair_turns import FairTurns, LineFull
from fleetward_engine.server.openai_models import ChatCompletionBody
from fleetward_engine.server.structure import MOST_WAITING, GrammarDesk
from fleetward_engine.tokenizer import ByteTokenizer
from tests.support.eventually import eventually

BODY = ChatCompletionBody.model_validate(
    {
        "model": "m",
        "messages": [{"role": "user", "content": "x"}],
        "response_format": {"type": "json_object"},
    }
)


class Counter:
    """Where turns are had: who had one, in order, and whether two ever had one at once."""

    def __init__(self, most_waiting: int = 1000) -> None:
        self.turns = FairTurns(most_waiting=most_waiting)
        self.had: list[str] = []
        self.inside = 0

    async def have(self, tenant: str) -> None:
        async with self.turns.turn(tenant):
            self.inside += 1
            try:
                assert self.inside == 1
                await asyncio.sleep(0)
                self.had.append(tenant)
            finally:
                self.inside -= 1

    def start(self, *tenants: str) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self.have(tenant)) for tenant in tenants]


async def test_a_tenant_waits_for_one_turn_of_each_other_and_not_for_their_lines() -> None:
    counter = Counter()
    tasks = counter.start(*"aaaaa", *"b", *"cc")
    await asyncio.gather(*tasks)
    assert counter.had[:4] == ["a", "a", "b", "c"]
    assert sorted(counter.had) == sorted("aaaaabcc")
    assert counter.turns._lines == {}


async def test_a_line_has_an_end_and_only_its_tenant_meets_it() -> None:
    counter = Counter(most_waiting=2)
    tasks = counter.start(*"aaaa", "b")
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(result, LineFull) for result in results] == [False] * 3 + [True, False]


@given(
    st.lists(st.sampled_from("abc"), max_size=12),
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 3)), max_size=8),
)
def test_whoever_leaves_takes_nobodys_turn_along(
    tenants: list[str], leaving: list[tuple[int, int]]
) -> None:
    async def story() -> None:
        counter = Counter()
        tasks = counter.start(*tenants)
        for number, rounds in leaving:
            for _ in range(rounds):
                await asyncio.sleep(0)
            if number < len(tasks):
                tasks[number].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        faults = [result for result in results if result is not None]
        assert all(isinstance(fault, asyncio.CancelledError) for fault in faults)
        assert counter.turns._lines == {}
        await counter.have("last")

    asyncio.run(story())


async def test_one_tenants_schemas_do_not_hold_up_anothers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_go, reading = threading.Semaphore(0), threading.Event()
    real = GrammarCompiler.json_schema

    def slow(self: GrammarCompiler, schema: dict[str, object], *, lenient: bool) -> Grammar:
        reading.set()
        assert may_go.acquire(timeout=60)
        return real(self, schema, lenient=lenient)

    monkeypatch.setattr(GrammarCompiler, "json_schema", slow)
    desk = GrammarDesk(ByteTokenizer())
    flood = [
        asyncio.create_task(desk.grammar_of(BODY, tenant="a")) for _ in range(MOST_WAITING + 2)
    ]
    await eventually(reading.is_set)
    mine = asyncio.create_task(desk.grammar_of(BODY, tenant="b"))
    with pytest.raises(ApiError, match="64 schemas of yours") as refusal:
        await flood[-1]
    assert (refusal.value.status, refusal.value.headers) == (429, {"retry-after": "1"})
    # The one that is being read, the one of theirs that is next, and ours.
    may_go.release(3)
    assert await asyncio.wait_for(mine, 60) is not None
    assert sum(task.done() for task in flood) <= 4
    may_go.release(MOST_WAITING)
    await asyncio.gather(*flood[:-1])
    desk.close()
