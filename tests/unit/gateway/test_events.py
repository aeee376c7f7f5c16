"""The cutter passes whole events at once and loses nothing."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from fleetward_gateway.problem import Problem
from fleetward_gateway.proxy.events import MAX_TAIL, EventCutter, error_event

chunks = st.lists(st.text(alphabet="ab\n\r", max_size=8).map(str.encode), max_size=12)


LOST = Problem(503, "upstream_failed", "lost")
DONE = b"data: [DONE]\n\n"


@given(chunks)
def test_whole_events_go_out_in_order_and_the_rest_is_kept_back(pieces: list[bytes]) -> None:
    cutter = EventCutter()
    out = b"".join(cutter.feed(piece) for piece in pieces)
    kept_back = b"".join(pieces).removeprefix(out)
    assert out + kept_back == b"".join(pieces)
    assert b"\n\n" not in kept_back
    assert b"\r\n\r\n" not in kept_back


@given(chunks)
def test_what_goes_out_ends_with_an_event(pieces: list[bytes]) -> None:
    cutter = EventCutter()
    for piece in pieces:
        data = cutter.feed(piece)
        assert data == b"" or data.endswith((b"\n\n", b"\r\n\r\n"))
    assert cutter.between_events


@given(st.lists(st.sampled_from([b"data: 1\n\n", b"data: {}\r\n\r\n", b": c\n\n"]), min_size=1))
def test_whole_events_are_never_kept_back(pieces: list[bytes]) -> None:
    cutter = EventCutter()
    assert [cutter.feed(piece) for piece in pieces] == pieces
    assert cutter.last(LOST) == error_event(LOST)


def test_an_endless_event_does_not_grow_without_bound() -> None:
    cutter = EventCutter()
    assert cutter.feed(b"x" * MAX_TAIL) == b""
    assert len(cutter.feed(b"x")) == MAX_TAIL + 1
    assert not cutter.between_events
    # The half event that went out is ended, so that the error is an event of its own.
    assert cutter.last(LOST) == b"\n\n" + error_event(LOST)


@given(st.integers(1, len(DONE) + 9), st.sampled_from([DONE, DONE.replace(b"\n", b"\r\n")]))
def test_a_stream_ends_with_done_or_an_error_however_it_is_cut(size: int, end: bytes) -> None:
    for last in (end, error_event(LOST)):
        stream = b"data: 1\n\n" + last
        cutter = EventCutter()
        for start in range(0, len(stream), size):
            cutter.feed(stream[start : start + size])
        assert cutter.ended
        assert cutter.last(LOST) == b""


def test_no_other_end_counts() -> None:
    for stream in (
        b"",
        b"data: 1\n\n",
        b"data: [DONE]",
        b"data: [DONE]\n",
        b"data: [DONE]\n\ndata: 1\n\n",
        b'data: {"text":"data: [DONE]"}\n\n',
        b'data: {"error":{}}\n\ndata: {}\n\n',
        b"xdata: [DONE]\n\n",
    ):
        cutter = EventCutter()
        cutter.feed(stream)
        assert cutter.last(LOST).endswith(error_event(LOST)), stream


def test_the_error_event_holds_the_error_body() -> None:
    event = error_event(Problem(504, "upstream_failed", "too\nslow"))
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert event.count(b"\n") == 2
    assert set(json.loads(event[6:])["error"]) == {"message", "type", "param", "code"}
