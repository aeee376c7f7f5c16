"""Queues and workers: each key once, never twice at a time, and no fault ends the work."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from fleetward_kube import KubeError
from fleetward_operator.edges.metrics import Metrics
from fleetward_operator.errors import NotLeading
from fleetward_operator.handlers.queue import KeyQueue
from fleetward_operator.handlers.worker import Reconcile, Worker
from tests.support.eventually import eventually


def test_the_quietest_watch_is_the_one_that_is_shown() -> None:
    metrics = Metrics()
    metrics.heard([3.0, 90.0, 1.0])
    assert metrics.registry.get_sample_value("fleetward_operator_watch_silence_seconds") == 90
    metrics.heard([])
    assert metrics.registry.get_sample_value("fleetward_operator_watch_silence_seconds") == 0


async def test_a_key_waits_once_and_in_order() -> None:
    queue = KeyQueue()
    for key in ("a", "b", "a"):
        queue.add(key)
    assert queue.depth == 2
    assert [await queue.take(), await queue.take()] == ["a", "b"]


async def test_a_key_added_while_it_is_worked_on_comes_again() -> None:
    queue = KeyQueue()
    queue.add("a")
    assert await queue.take() == "a"
    queue.add("a")
    assert queue.depth == 0
    queue.done("a")
    assert await queue.take() == "a"


async def test_the_soonest_delay_wins_and_news_beats_them_all() -> None:
    queue = KeyQueue()
    queue.add_later("a", 60.0)
    queue.add_later("a", 0.01)
    queue.add_later("a", 60.0)
    assert await asyncio.wait_for(queue.take(), 5) == "a"
    queue.done("a")
    queue.add_later("a", 60.0)
    queue.add("a")
    assert await asyncio.wait_for(queue.take(), 5) == "a"


async def test_a_taker_that_gives_up_takes_nothing_with_it() -> None:
    queue = KeyQueue()
    taker = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    taker.cancel()
    await asyncio.gather(taker, return_exceptions=True)
    queue.add("a")
    assert await asyncio.wait_for(queue.take(), 5) == "a"


def worker(reconcile: Reconcile, *, at_once: int = 3) -> Worker:
    return Worker(
        "service",
        reconcile,
        metrics=Metrics(),
        rng=random.Random(1),  # noqa: S311 - jitter
        at_once=at_once,
    )


async def run(subject: Worker, until: Callable[[], bool]) -> None:
    task = asyncio.create_task(subject.run())
    try:
        await eventually(until)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_no_key_is_worked_on_twice_at_a_time() -> None:
    active: set[str] = set()
    seen: list[str] = []

    async def reconcile(key: str) -> float | None:
        assert key not in active
        active.add(key)
        await asyncio.sleep(0.001)
        if len(seen) < 10:
            subject.queue.add("a")
        active.discard(key)
        seen.append(key)
        return None

    subject = worker(reconcile)
    for key in ("a", "b", "c", "a"):
        subject.queue.add(key)
    await run(subject, lambda: len(seen) >= 10)


@pytest.mark.parametrize(
    ("fault", "result"),
    [
        (KubeError(503, "ServiceUnavailable", "busy"), "retry"),
        (KubeError(409, "Conflict", "changed"), "retry"),
        (ValueError("a fault of ours"), "error"),
    ],
)
async def test_a_fault_is_tried_again_and_others_go_on(fault: Exception, result: str) -> None:
    seen: list[str] = []

    async def reconcile(key: str) -> float | None:
        seen.append(key)
        if key == "bad" and seen.count("bad") == 1:
            raise fault
        return None

    subject = worker(reconcile)
    subject.queue.add("bad")
    subject.queue.add("good")
    await run(subject, lambda: seen.count("bad") == 2 and "good" in seen)
    counted = subject._metrics.reconciles.labels(kind="service", result=result)
    assert counted._value.get() == 1


async def test_without_the_lease_a_key_is_left_to_the_next_leader() -> None:
    seen: list[str] = []

    async def reconcile(key: str) -> float | None:
        seen.append(key)
        raise NotLeading("gone")

    subject = worker(reconcile, at_once=1)
    subject.queue.add("a")
    subject.queue.add("b")
    await run(subject, lambda: seen == ["a", "b"])
    assert not subject.queue._timers


async def test_a_pass_may_ask_to_come_back() -> None:
    seen: list[str] = []

    async def reconcile(key: str) -> float | None:
        seen.append(key)
        return 0.01 if len(seen) < 3 else None

    subject = worker(reconcile)
    subject.queue.add("a")
    await run(subject, lambda: len(seen) == 3)


async def test_a_key_is_not_tried_again_before_the_api_server_wants_it() -> None:
    passes: list[float] = []

    async def reconcile(_key: str) -> None:
        passes.append(asyncio.get_running_loop().time())
        if len(passes) == 1:
            raise KubeError(429, "TooManyRequests", "later", retry_after_s=1.0)

    subject = worker(reconcile)
    subject.queue.add("a")
    await run(subject, lambda: len(passes) == 2)
    # Timers of the loop may be a clock's tick early.
    assert passes[1] - passes[0] > 0.99


def test_who_is_told_when_to_come_does_not_wait_ever_longer() -> None:
    async def never(_key: str) -> None:
        return None

    subject = worker(never)
    asked = KubeError(429, "TooManyRequests", "later", retry_after_s=1.0)
    assert all(1.0 <= subject._delay_after(asked, "a") <= 1.2 for _ in range(20))
    assert subject._delay_after(KubeError(500, "InternalError", ""), "a") <= 0.2


async def test_a_cancel_that_a_pass_answers_with_a_fault_still_ends_the_work() -> None:
    begun = asyncio.Event()

    async def stubborn(_: str) -> float | None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("a fault in the very moment of the cancel")

    subject = worker(stubborn)
    subject.queue.add("a")
    task = asyncio.create_task(subject.run())
    await begun.wait()
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=10)
    assert done, "the worker waits for keys that nobody will work on"
    assert task.cancelled()
