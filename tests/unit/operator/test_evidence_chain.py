"""Leaders that die while they store evidence, in every place and every order: one whole chain."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, cast

import pytest

from fleetward_api.canonical import canonical_bytes, digest
from fleetward_api.chain_log import GENESIS, ChainHead
from fleetward_api.evidence import chunk_evidence
from fleetward_kube import KubeClient, KubeError
from fleetward_operator.edges import evidence_store
from fleetward_operator.edges.evidence_store import EvidenceStore, StoredEvidence
from fleetward_operator.edges.writer import Writer
from tests.support.object_api import ObjectApi
from tests.support.stepped_api import SteppedApi, SteppedWriter, Stepper

CONFIGMAPS = "/api/v1/namespaces/n/configmaps"
MOST_CALLS = 14
LONG = 1000


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of `LONG` bytes fills a chunk; short evidence lies in one."""
    monkeypatch.setattr(evidence_store, "chunk_evidence", partial(chunk_evidence, limit=1200))


def build(uid: str, *, size: int) -> Callable[[ChainHead], bytes]:
    """Evidence in its outline: what the store reads of it, and a record of `size` bytes."""

    def made(previous: ChainHead) -> bytes:
        body = {"previous": json.loads(canonical_bytes(previous)), "purge": uid}
        first = json.dumps({"payload": {"body": body}})
        return f"{first}\n{'y' * size}\n".encode()

    return made


class Leader:
    """One process of the operator: its own client, writer and store over the shared objects."""

    def __init__(self, api: ObjectApi, *, size: int) -> None:
        self._steps = SteppedApi(api)
        client = cast("KubeClient", self._steps)
        writer = cast("Writer", SteppedWriter(self._steps))
        self._store = EvidenceStore(client, writer, namespace="n")
        self._size = size

    def begin(self, uid: str) -> Stepper[StoredEvidence]:
        return Stepper(lambda: self._store.store(uid, uid, build(uid, size=self._size)))

    def finish(self, uid: str) -> Generator[None, None, StoredEvidence]:
        """Store until it holds, as a purge does whose pass was refused."""
        for _ in range(4):
            try:
                return (yield from self.begin(uid))
            except KubeError as error:
                if not error.conflict:
                    raise
        raise AssertionError(f"the evidence of {uid} is refused again and again")


def chain_of(api: ObjectApi) -> list[str]:
    """The purges in the chain, from its head to its beginning; fails where a link is missing."""
    files: dict[str, tuple[str, str]] = {}
    texts: dict[str, dict[int, str]] = {}
    for path, item in api.objects.items():
        uid, _, number = path.removeprefix(f"{CONFIGMAPS}/fleetward-evidence-").rpartition("-")
        if "evidence.jsonl" in item["data"]:
            texts.setdefault(uid, {})[int(number)] = item["data"]["evidence.jsonl"]
    for uid, chunks in texts.items():
        data = "".join(chunks[number] for number in sorted(chunks))
        previous = json.loads(data.split("\n", 1)[0])["payload"]["body"]["previous"]["digest"]
        files[digest(data.encode())] = (uid, previous)
    head = json.loads(api.objects[f"{CONFIGMAPS}/fleetward-evidence-head"]["data"]["head.json"])
    found: list[str] = []
    at = head["digest"]
    while at != GENESIS:
        assert at in files, f"the chain names {at}, which is not there; after {found}"
        uid, at = files[at]
        found.append(uid)
    assert len(found) == head["sequence"], (found, head)
    return found


def run(steps: Generator[None, None, Any], *, calls: int) -> bool:
    """Let a process make so many calls; whether it ended before."""
    return any(next(steps, "end") == "end" for _ in range(calls))


def answer(steps: Generator[None, None, StoredEvidence]) -> StoredEvidence:
    """Let every call through."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return cast("StoredEvidence", stop.value)


@pytest.mark.parametrize("size", [10, LONG])
@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
def test_a_leader_that_dies_at_any_call_and_the_next_one_leave_one_chain(
    order: tuple[str, str], size: int
) -> None:
    """The first dies after `calls` calls; its last one may still be on the way when it dies.

    `landing` is how many calls the next leader has made when that late call arrives.
    """
    for calls, landing in itertools.product(range(MOST_CALLS), range(2 * MOST_CALLS)):
        api = ObjectApi()
        old = iter(Leader(api, size=size).begin("one"))
        ended = run(old, calls=calls)
        successor = Leader(api, size=size)
        told: dict[str, str] = {}

        def work(
            successor: Leader = successor, told: dict[str, str] = told
        ) -> Generator[None, None, None]:
            for uid in order:
                told[uid] = (yield from successor.finish(uid)).digest

        new = work()
        run(new, calls=landing)
        if not ended:
            # Its lease is gone: one call was under way, and nothing follows it.
            with contextlib.suppress(KubeError):
                next(old, None)
        for _ in new:
            pass
        found = chain_of(api)
        assert sorted(found) == ["one", "two"], (calls, landing, found)
        assert len(told) == 2


@pytest.mark.parametrize("first", range(MOST_CALLS))
def test_two_leaders_that_die_one_after_the_other_leave_one_chain(first: int) -> None:
    for second, order in itertools.product(
        range(2 * MOST_CALLS), (("one", "two"), ("two", "one"), ("two", "two"))
    ):
        api = ObjectApi()
        run(iter(Leader(api, size=10).begin("one")), calls=first)
        middle = Leader(api, size=10)
        run((_ for uid in order for _ in middle.finish(uid)), calls=second)
        last = Leader(api, size=10)
        told = [answer(last.finish(uid)).digest for uid in ("one", "two", "one")]
        assert sorted(chain_of(api)) == ["one", "two"], (second, order)
        assert told[0] == told[2], "the evidence of a purge changed after it was told"
