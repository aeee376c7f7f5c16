"""Evidence goes oldest first, never a link that is needed, and the rest stays one chain."""

from __future__ import annotations

import contextlib
import itertools
import json
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.canonical import digest
from fleetward_api.chain_log import ChainHead
from fleetward_api.evidence import chunk_evidence
from fleetward_api.resources import CachePolicySpec
from fleetward_kube import KubeClient, KubeError
from fleetward_operator.core.purge.retention import (
    KeptEvidence,
    Removal,
    RetainWatch,
    longest_retain,
    plan_removal,
)
from fleetward_operator.edges import evidence_store
from fleetward_operator.edges.evidence_store import EvidenceStore, observe_evidence
from fleetward_operator.edges.writer import Writer
from tests.support.object_api import ObjectApi
from tests.support.stepped_api import SteppedApi, SteppedWriter, Stepper
from tests.unit.operator.test_evidence_chain import CONFIGMAPS, Leader, answer, run

HEAD = f"{CONFIGMAPS}/fleetward-evidence-head"
MOST_CALLS = 16


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of 1500 bytes does not fit in a chunk with another."""
    monkeypatch.setattr(evidence_store, "chunk_evidence", partial(chunk_evidence, limit=600))


def link(number: int) -> ChainHead:
    return (
        ChainHead(sequence=number, digest=digest(str(number).encode())) if number else ChainHead()
    )


def kept(number: int, *, at: float, uid: str = "") -> KeptEvidence:
    return KeptEvidence(purge_uid=uid or f"p{number}", previous=link(number - 1), stored_at=at)


def plan(found: list[KeptEvidence], *, head: int, **given: Any) -> Removal | None:
    facts: dict[str, Any] = {"needed": (), "before": 100.0, "most": 20, **given}
    return plan_removal(found, head=link(head), **facts)


def test_the_oldest_goes_and_the_anchor_is_what_the_rest_follows() -> None:
    found = [kept(n, at=n * 10.0) for n in range(1, 16)]
    assert plan(found, head=15) == Removal(
        purge_uids=tuple(f"p{n}" for n in range(1, 10)), anchor=link(9)
    )
    assert plan(found, head=15, most=2) == Removal(purge_uids=("p1", "p2"), anchor=link(2))
    assert plan(found, head=15, before=10.0) is None


def test_the_head_stays_however_old_it_is() -> None:
    found = [kept(n, at=0.0) for n in (1, 2, 3)]
    assert plan(found, head=3) == Removal(purge_uids=("p1", "p2"), anchor=link(2))
    assert plan(found[2:], head=3) is None
    # Chained or not, nobody knows yet.
    assert plan([*found, kept(4, at=0.0)], head=3) == plan(found, head=3)


def test_what_is_needed_keeps_all_that_comes_after_it() -> None:
    found = [kept(n, at=0.0) for n in range(1, 6)]
    assert plan(found, head=5, needed={"p3"}) == Removal(purge_uids=("p1", "p2"), anchor=link(2))
    assert plan(found, head=5, needed={"p1"}) is None


def test_no_link_goes_that_could_hide_a_missing_one() -> None:
    found = [kept(n, at=at) for n, at in ((1, 0.0), (2, 0.0), (4, 500.0), (5, 500.0))]
    assert plan(found, head=5) == Removal(purge_uids=("p1",), anchor=link(1))
    assert plan([found[0], *found[2:]], head=5) is None


def test_evidence_that_was_never_chained_goes_with_its_time() -> None:
    found = [kept(1, at=0.0), kept(2, at=0.0), kept(2, at=0.0, uid="orphan"), kept(3, at=500.0)]
    expected = Removal(purge_uids=("p1", "orphan", "p2"), anchor=link(2))
    assert plan(found, head=3) == expected


@given(
    ages=st.lists(st.floats(0, 200), min_size=1, max_size=12),
    missing=st.sets(st.integers(1, 12)),
    needed=st.sets(st.integers(1, 12)),
    most=st.integers(1, 12),
)
def test_what_stays_follows_from_the_anchor_or_lacks_what_it_lacked_before(
    ages: list[float], missing: set[int], needed: set[int], most: int
) -> None:
    head = len(ages)
    found = [kept(n, at=at) for n, at in enumerate(ages, start=1) if n not in missing]
    removal = plan(found, head=head, needed={f"p{n}" for n in needed}, most=most)
    if removal is None:
        return
    gone = {one for one in found if one.purge_uid in removal.purge_uids}
    stays = [one for one in found if one not in gone]
    assert gone
    assert len(gone) <= most
    assert all(one.stored_at < 100.0 for one in gone)
    assert not {one.purge_uid for one in gone} & {f"p{n}" for n in needed}
    assert max(one.sequence for one in gone) == removal.anchor.sequence < head
    assert min(one.sequence for one in stays) == removal.anchor.sequence + 1
    assert stays[0].previous == removal.anchor


def spec(retain: str) -> CachePolicySpec:
    return CachePolicySpec.model_validate({"deletion": {"evidence": {"retain": retain}}})


def test_the_longest_retain_of_all_counts() -> None:
    assert longest_retain([spec("1h"), spec("48h"), spec("30m")]) == 48 * 3600
    assert longest_retain([CachePolicySpec()]) == 2160 * 3600


def test_a_shorter_retain_counts_only_when_it_was_seen_twice() -> None:
    watch = RetainWatch()
    looks = [(0, 90.0), (600, 90.0), (1200, 5.0), (1201, 5.0), (1500, 90.0), (1800, 5.0)]
    seen = [watch.look(retain_s, now=at, apart_s=300) for at, retain_s in looks]
    assert seen == [None, 90.0, 90.0, 90.0, 90.0, 90.0]
    assert watch.look(5.0, now=2400, apart_s=300) == 5.0
    assert watch.look(7.0, now=2401, apart_s=300) == 7.0
    watch.forget()
    assert watch.look(5.0, now=3000, apart_s=300) is None


def stored(count: int, *, size: int) -> ObjectApi:
    api = ObjectApi()
    for number in range(count):
        answer(Leader(api, size=size).finish(f"p{number}"))
    return api


def evidence_items(api: ObjectApi) -> list[dict[str, Any]]:
    items = [item for item in api.objects.values() if "evidence.jsonl" in item["data"]]
    for item in items:
        item["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return items


def expire(api: ObjectApi, *, most: int = 20) -> Stepper[Removal | None]:
    """One process's pass over what it sees at its start."""
    steps = SteppedApi(api)
    writer = cast("Writer", SteppedWriter(steps))
    store = EvidenceStore(cast("KubeClient", steps), writer, namespace="n")
    items = json.loads(json.dumps(evidence_items(api)))
    found = [one for one in map(observe_evidence, items) if one is not None]

    def decide(head: ChainHead) -> Removal | None:
        return plan_removal(found, head=head, needed=(), before=2e9, most=most)

    return Stepper(lambda: store.expire(items, decide))


def remainder(api: ObjectApi) -> list[str]:
    """The purges from the head back to where the chain begins; fails where a link is missing."""
    head = json.loads(api.objects[HEAD]["data"]["head.json"])
    removed = json.loads(api.objects[HEAD]["data"].get("removed.json", "null"))
    end = ChainHead.model_validate(removed) if removed else ChainHead()
    texts: dict[str, dict[int, str]] = {}
    for item in evidence_items(api):
        uid, _, number = str(item["metadata"]["name"])[len("fleetward-evidence-") :].rpartition("-")
        texts.setdefault(uid, {})[int(number)] = item["data"]["evidence.jsonl"]
    files = {}
    for uid, chunks in texts.items():
        data = "".join(chunks[number] for number in sorted(chunks)).encode()
        first = json.loads(data.split(b"\n", 1)[0])
        files[digest(data)] = (uid, first["payload"]["body"]["previous"]["digest"])
    found: list[str] = []
    at = head["digest"]
    while at != end.digest:
        uid, at = files[at]
        found.append(uid)
    assert len(found) == head["sequence"] - end.sequence
    return found


@pytest.mark.parametrize("size", [10, 1500])
def test_a_leader_that_dies_at_any_call_leaves_a_chain_that_the_next_one_shortens(
    size: int,
) -> None:
    """Its last call may arrive when the next leader has made some of its own."""
    for calls, landing in itertools.product(range(MOST_CALLS), range(0, MOST_CALLS, 3)):
        api = stored(4, size=size)
        old = iter(expire(api))
        ended = run(old, calls=calls)
        assert remainder(api)[0] == "p3", calls
        new = iter(expire(api))
        run(new, calls=landing)
        if not ended:
            with contextlib.suppress(KubeError):
                next(old, None)
        with contextlib.suppress(KubeError):
            for _ in new:
                pass
        remainder(api)
        for _ in expire(api):
            pass
        assert remainder(api) == ["p3"], (calls, landing)
        assert len({i["metadata"]["name"].rpartition("-")[0] for i in evidence_items(api)}) == 1
        answer(Leader(api, size=size).finish("p4"))
        assert remainder(api) == ["p4", "p3"], "the next evidence forgot where the chain begins"


def test_only_so_much_goes_at_once() -> None:
    api = stored(5, size=10)
    for left in (["p4", "p3", "p2"], ["p4"], ["p4"]):
        for _ in expire(api, most=2):
            pass
        assert remainder(api) == left


def test_evidence_that_somebody_touched_meanwhile_stays() -> None:
    api = stored(3, size=10)
    pass_over = iter(expire(api))
    next(pass_over)
    path = f"{CONFIGMAPS}/fleetward-evidence-p0-0"
    api.objects[path]["metadata"]["resourceVersion"] = "999"
    with pytest.raises(KubeError):
        for _ in pass_over:
            pass
    assert path in api.objects
