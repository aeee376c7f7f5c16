"""The cutter passes whole events at once and loses nothing."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from fleetward_gateway.problem import Problem
from fleetward_gateway.proxy.events import MAX_TAIL, EventCutter, error_event

chunks = st.lists(st.text(alphabet="ab\n\r", max_size=8).map(str.encode), max_size=12)


@given(chunks)
def test_nothing_is_lost_reordered_or_doubled(pieces: list[bytes]) -> None:
    cutter = EventCutter()
    out = [cutter.feed(piece) for piece in pieces]
    assert b"".join(out) + cutter.rest() == b"".join(pieces)


@given(chunks)
def test_what_goes_out_ends_with_an_event(pieces: list[bytes]) -> None:
    cutter = EventCutter()
    for piece in pieces:
        data = cutter.feed(piece)
        assert data == b"" or data.endswith((b"\n\n", b"\r\n\r\n"))


@given(st.lists(st.sampled_from([b"data: 1\n\n", b"data: {}\r\n\r\n", b": c\n\n"]), min_size=1))
def test_whole_events_are_never_kept_back(pieces: list[bytes]) -> None:
    cutter = EventCutter()
    assert [cutter.feed(piece) for piece in pieces] == pieces
    assert cutter.rest() == b""


def test_an_endless_event_does_not_grow_without_bound() -> None:
    cutter = EventCutter()
    assert cutter.feed(b"x" * MAX_TAIL) == b""
    assert len(cutter.feed(b"x")) == MAX_TAIL + 1
    assert cutter.rest() == b""


def test_the_error_event_holds_the_error_body() -> None:
    event = error_event(Problem(504, "upstream_failed", "too\nslow"))
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert event.count(b"\n") == 2
    assert set(json.loads(event[6:])["error"]) == {"message", "type", "param", "code"}
