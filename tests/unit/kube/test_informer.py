"""The informer against a list and watch server whose faults are chosen."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any, Self

import pytest
from aiohttp import web

from fleetward_kube import Informer, KubeClient, WatchTiming
from fleetward_kube.backoff import Backoff
from tests.support.eventually import eventually
from tests.support.fake_kube import PATH, FakeCollection

Change = tuple[str, str | None, str | None]


@pytest.fixture
async def server() -> AsyncIterator[FakeCollection]:
    collection = FakeCollection()
    await collection.start()
    yield collection
    await collection.stop()


@pytest.fixture
async def client(server: FakeCollection) -> AsyncIterator[KubeClient]:
    async with KubeClient(server.connection) as opened:
        yield opened


class Watched:
    """A running informer and everything it told."""

    def __init__(self, informer: Informer) -> None:
        self.informer = informer
        self.changes: list[Change] = []
        informer.subscribe(self._note)
        self.task = asyncio.create_task(informer.run())

    def _note(self, key: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        self.changes.append((key, _value(old), _value(new)))

    async def __aenter__(self) -> Self:
        await asyncio.wait_for(self.informer.synced.wait(), 20)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def _value(item: dict[str, Any] | None) -> str | None:
    return None if item is None else str(item["data"].get("v", ""))


async def test_lists_in_pages_then_follows_the_watch(
    server: FakeCollection, client: KubeClient
) -> None:
    for number in range(5):
        server.put(f"a{number}", v="1")
    informer = Informer(client, PATH, page_size=2, label_selector="x=y", field_selector="f=g")
    async with Watched(informer) as watched:
        assert sorted(informer.objects) == [f"n/a{number}" for number in range(5)]
        assert server.lists == 1
        assert server.queries[0]["labelSelector"] == "x=y"
        assert server.queries[0]["fieldSelector"] == "f=g"
        await server.watching.wait()
        watched.changes.clear()
        server.put("a0", v="2")
        server.delete("a1")
        server.put("b", v="1")
        await eventually(lambda: len(watched.changes) == 3)
        assert watched.changes == [("n/a0", "1", "2"), ("n/a1", "1", None), ("n/b", None, "1")]


async def test_expired_watch_tells_what_vanished_meanwhile(
    server: FakeCollection, client: KubeClient
) -> None:
    for name in ("gone", "kept", "remade", "edited"):
        server.put(name, v="1")
    async with Watched(Informer(client, PATH)) as watched:
        await server.watching.wait()
        watched.changes.clear()
        server.delete("gone", tell=False)
        server.put("remade", uid="other", tell=False, v="2")
        server.put("edited", tell=False, v="2")
        server.put("new", tell=False, v="1")
        server.expire()
        await eventually(lambda: server.lists == 2 and len(watched.changes) == 5)
        assert sorted(watched.changes, key=lambda change: change[0]) == [
            ("n/edited", "1", "2"),
            ("n/gone", "1", None),
            ("n/new", None, "1"),
            ("n/remade", "1", None),
            ("n/remade", None, "2"),
        ]


async def test_outage_keeps_objects_and_resumes_without_a_new_list(
    server: FakeCollection, client: KubeClient
) -> None:
    server.put("a", v="1")
    async with Watched(Informer(client, PATH)) as watched:
        await server.watching.wait()
        await server.stop()
        await eventually(lambda: watched.informer.problem != "")
        assert "n/a" in watched.informer.objects
        await server.start()
        await server.watching.wait()
        server.put("a", v="2")
        await eventually(lambda: watched.informer.objects["n/a"]["data"]["v"] == "2")
        assert server.lists == 1
        assert watched.informer.problem == ""


async def test_silent_stream_is_left_for_a_new_one(
    server: FakeCollection, client: KubeClient
) -> None:
    informer = Informer(client, PATH, timing=WatchTiming(quiet_s=0.05, rng=random.Random(1)))  # noqa: S311
    async with Watched(informer):
        await eventually(lambda: sum("watch" in query for query in server.queries) >= 3)


async def test_a_watch_that_is_granted_and_says_nothing_is_no_word_of_the_server(
    server: FakeCollection, client: KubeClient
) -> None:
    now = [0.0]
    timing = WatchTiming(quiet_s=0.05, clock=lambda: now[0], rng=random.Random(1))  # noqa: S311
    informer = Informer(client, PATH, timing=timing)
    async with Watched(informer):
        now[0] = 100.0
        before = len(server.queries)
        await eventually(lambda: len(server.queries) >= before + 3)
        assert informer.silent_for() == informer.mute_for() == 100.0
        bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}

        def spoken() -> bool:
            # Again and again: each watch lasts but a moment.
            server.send(bookmark)
            return informer.silent_for() == 0.0

        await eventually(spoken)
        assert informer.mute_for() == 0.0


async def test_an_outage_explains_a_silence(server: FakeCollection, client: KubeClient) -> None:
    now = [0.0]
    informer = Informer(client, PATH, timing=WatchTiming(clock=lambda: now[0]))
    async with Watched(informer):
        await server.watching.wait()
        await server.stop()
        now[0] = 100.0
        await eventually(lambda: informer.mute_for() == 0.0)
        await server.start()
        await server.watching.wait()
        await eventually(lambda: informer.problem == "")
        assert (informer.silent_for(), informer.mute_for()) == (100.0, 0.0)


async def test_refused_list_is_retried_and_the_reason_kept(
    server: FakeCollection, client: KubeClient
) -> None:
    refusal = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}
    server.page_faults = [web.json_response(refusal, status=403) for _ in range(2)]
    informer = Informer(client, PATH)
    problems: list[str] = []
    task = asyncio.create_task(informer.run())
    await eventually(lambda: informer.problem != "")
    problems.append(informer.problem)
    assert not informer.synced.is_set()
    await asyncio.wait_for(informer.synced.wait(), 20)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert problems == ["Forbidden (403): no"]


@pytest.mark.parametrize("status", [403, 410])
async def test_lists_whose_watch_is_refused_come_ever_more_slowly(
    server: FakeCollection, client: KubeClient, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    delays: list[float] = []
    real = Backoff.next_delay

    def noted(backoff: Backoff) -> float:
        delays.append(real(backoff))
        return 0.0

    monkeypatch.setattr(Backoff, "next_delay", noted)
    server.watch_refusal = status
    async with Watched(Informer(client, PATH)) as watched:
        await eventually(lambda: len(delays) >= 6)
        assert delays[5] > 2.0
        # Once it works again, so do short delays.
        server.watch_refusal = 0
        await eventually(server.watching.is_set)
        server.put("a", v="1")
        await eventually(lambda: watched.changes != [])
        delays.clear()
        server.end_watches()
        server.watch_refusal = status
        await eventually(lambda: len(delays) >= 1)
        assert delays[0] <= 0.2


async def test_long_and_split_lines_are_read_whole(
    server: FakeCollection, client: KubeClient
) -> None:
    async with Watched(Informer(client, PATH)) as watched:
        await server.watching.wait()
        big = "x" * 1_400_000
        server.put("big", v=big)
        await eventually(lambda: "n/big" in watched.informer.objects)
        assert watched.informer.objects["n/big"]["data"]["v"] == big
        line = b'{"type":"DELETED","object":{"metadata":{"namespace":"n","name":"big"}}}\n'
        server.send_bytes(line[:30])
        server.send_bytes(line[30:])
        await eventually(lambda: "n/big" not in watched.informer.objects)


async def test_garbage_on_the_watch_leads_to_a_fresh_list(
    server: FakeCollection, client: KubeClient
) -> None:
    server.put("a", v="1")
    async with Watched(Informer(client, PATH)) as watched:
        await server.watching.wait()
        server.delete("a", tell=False)
        server.send_bytes(b"{not json}\n")
        await eventually(lambda: "n/a" not in watched.informer.objects)
        assert server.lists == 2


async def test_failing_subscriber_blinds_nobody(
    server: FakeCollection, client: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    informer = Informer(client, PATH)

    def fails(key: str, old: object, new: object) -> None:
        raise ValueError(key)

    informer.subscribe(fails)
    async with Watched(informer) as watched:
        await server.watching.wait()
        server.put("a", v="1")
        await eventually(lambda: watched.changes == [("n/a", None, "1")])
    assert "a subscriber of" in caplog.text


async def test_trim_is_applied_and_late_subscribers_hear_of_all(
    server: FakeCollection, client: KubeClient
) -> None:
    server.put("a", v="1", secret="s")
    informer = Informer(client, PATH, trim=lambda item: {"data": {"v": item["data"]["v"]}})
    async with Watched(informer):
        heard: list[str] = []
        informer.subscribe(lambda key, _old, _new: heard.append(key))
        assert heard == ["n/a"]
        assert informer.objects["n/a"] == {"data": {"v": "1"}}
