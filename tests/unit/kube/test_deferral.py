"""Retry-After: no call comes earlier than the API server asked, whoever makes it."""

from __future__ import annotations

import asyncio
import random
import time

import pytest
from aiohttp import web

from fleetward_kube import Informer, KubeClient, KubeError
from fleetward_kube.backoff import not_before
from fleetward_kube.connection import Connection
from fleetward_kube.deferral import LONGEST_S, Deferrals
from fleetward_kube.informer import WatchTiming
from tests.support.eventually import eventually


class Time:
    """A clock that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_call_waits_as_long_as_was_asked_and_no_other_does() -> None:
    clock = Time()
    deferrals = Deferrals(clock)
    assert deferrals.note("GET", "/a", "7") == 7
    for _ in range(2):
        with pytest.raises(KubeError) as refused:
            deferrals.check("GET", "/a")
        assert (refused.value.status, refused.value.retry_after_s) == (429, 7)
        assert refused.value.retryable
    deferrals.check("PUT", "/a")
    deferrals.check("GET", "/b")
    clock.now += 6.9
    with pytest.raises(KubeError):
        deferrals.check("GET", "/a")
    clock.now += 0.1
    deferrals.check("GET", "/a")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        *((None, 0), ("", 0), ("-1", 0), ("nan", 0), ("1.5", 0), ("soon", 0), ("²", 0)),
        *(("0", 0), (" 3 ", 3), ("9" * 400, LONGEST_S)),
    ],
)
def test_odd_wishes_defer_nothing_and_endless_ones_end(header: str | None, seconds: float) -> None:
    assert Deferrals(Time()).note("GET", "/a", header) == seconds


def test_what_has_passed_is_forgotten() -> None:
    clock = Time()
    deferrals = Deferrals(clock)
    for number in range(5000):
        clock.now += 1.0
        deferrals.note("GET", f"/{number}", "2")
    assert len(deferrals._until) <= 1000


def test_a_delay_is_never_shorter_than_the_wish() -> None:
    asked = KubeError(429, "TooManyRequests", "later", retry_after_s=4.0)
    assert (not_before(asked, 1.0), not_before(asked, 9.0)) == (4.0, 9.0)
    assert not_before(ValueError(), 1.0) == 1.0


class Busy:
    """A server that refuses every other call, watches among them, and notes who comes too early."""

    def __init__(self) -> None:
        self.until: dict[str, float] = {}
        self.early: list[str] = []
        self.calls: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        kind = "watch" if "watch" in request.query else "list"
        self.calls.append(kind)
        if time.monotonic() < self.until.get(request.path, 0.0):
            self.early.append(kind)
        if len(self.calls) % 2:
            self.until[request.path] = time.monotonic() + 1.0
            return web.json_response({}, status=429, headers={"Retry-After": "1"})
        if kind == "list":
            return web.json_response({"metadata": {"resourceVersion": "5"}, "items": []})
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(0.05)
        return response


async def test_an_informer_keeps_its_place_and_comes_when_it_was_told_to() -> None:
    busy = Busy()
    app = web.Application()
    app.router.add_get("/api/v1/pods", busy.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    async with KubeClient(Connection(f"http://127.0.0.1:{port}")) as client:
        timing = WatchTiming(rng=random.Random(1))  # noqa: S311 - jitter
        informer = Informer(client, "/api/v1/pods", timing=timing)
        running = asyncio.create_task(informer.run())
        await eventually(lambda: busy.calls.count("watch") >= 3)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await runner.cleanup()
    assert busy.early == []
    assert busy.calls[:4] == ["list", "list", "watch", "watch"]
    assert busy.calls.count("list") == 2
