"""A member's own hash-chained log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.canonical import canonical_bytes, parse_model
from fleetward_api.chain_log import ChainHead, ChainLog, ChainRecord, chain_fault
from fleetward_api.errors import CanonicalError

BODIES = st.lists(st.dictionaries(st.text("abé", max_size=3), st.integers(0, 9), max_size=3))


def _log(count: int, *, kept: int = 100) -> ChainLog:
    log = ChainLog(kept=kept)
    for number in range(count):
        log.append("step", {"n": number})
    return log


@given(BODIES, st.integers(0, 12))
def test_a_reader_can_follow_from_any_point(bodies: list[dict[str, int]], at: int) -> None:
    log = ChainLog()
    heads = [log.head, *(log.append("x", dict(body)) for body in bodies)]
    at = min(at, len(bodies))
    records = [parse_model(ChainRecord, canonical_bytes(record)) for record in log.since(at)]
    assert [record.body for record in records] == bodies[at:]
    assert chain_fault(records, after=heads[at], head=log.head) is None


def test_an_empty_log_stands_at_genesis() -> None:
    assert ChainLog().head == ChainHead(sequence=0, digest="sha256:" + "0" * 64)
    assert ChainLog().since(0) == ()


@given(st.integers(1, 8), st.data())
def test_dropped_moved_changed_and_cut_records_are_caught(count: int, data: st.DataObject) -> None:
    log = _log(count)
    records = list(log.since(0))
    at = data.draw(st.integers(0, count - 1))
    how = data.draw(st.sampled_from(["drop", "change", "repeat", "cut"]))
    if how == "drop":
        records.pop(at)
    elif how == "change":
        records[at] = records[at].model_copy(update={"body": {"n": 99}})
    elif how == "repeat":
        records.insert(at, records[at])
    else:
        records = records[:at]
    assert chain_fault(records, after=ChainHead(), head=log.head) is not None


def test_the_fault_names_the_first_record_that_is_wrong() -> None:
    records = list(_log(5).since(0))
    head = records[-1].head
    del records[2]
    assert chain_fault(records, after=ChainHead(), head=head) == "record 3 is missing"
    other = _log(1).since(0)[0].model_copy(update={"sequence": 2})
    fault = chain_fault([records[0], other], after=ChainHead(), head=head)
    assert fault == "record 2 does not follow record 1"


def test_old_records_go_and_the_chain_stays() -> None:
    log = _log(10, kept=3)
    assert [record.sequence for record in log.since(0)] == [8, 9, 10]
    assert log.head.sequence == 10
    assert log.head == _log(10).head


def test_a_body_is_copied() -> None:
    log = ChainLog()
    body = {"list": [1]}
    log.append("x", body)  # type: ignore[arg-type]
    body["list"].append(2)
    assert log.since(0)[0].body == {"list": [1]}


def test_a_body_that_cannot_be_written_leaves_the_log_as_it_was() -> None:
    log = _log(1)
    head = log.head
    with pytest.raises(CanonicalError):
        log.append("x", {"share": 0.5})
    assert log.head == head
