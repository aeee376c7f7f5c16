"""Text grows by whole characters and equals what decoding everything at once gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleetward_engine.detokenizer import Detokenizer
from fleetward_engine.tokenizer import ByteTokenizer


def feed(data: bytes, stop: tuple[str, ...] = ()) -> tuple[list[str], str]:
    detokenizer = Detokenizer(ByteTokenizer(), stop)
    return [detokenizer.feed(byte) for byte in data], detokenizer.finish()


@given(st.binary(max_size=60))
def test_any_bytes_decode_as_a_whole(data: bytes) -> None:
    deltas, rest = feed(data)
    assert "".join(deltas) + rest == data.decode("utf-8", "replace")


@given(st.text(max_size=30))
def test_valid_text_never_shows_a_replacement(text: str) -> None:
    clean = text.replace("\N{REPLACEMENT CHARACTER}", "")
    deltas, rest = feed(clean.encode("utf-8"))
    assert "".join(deltas) == clean
    assert rest == ""


def test_a_character_shows_with_its_last_byte() -> None:
    deltas, rest = feed("é😀漢".encode())
    assert deltas == ["", "é", "", "", "", "😀", "", "", "漢"]
    assert rest == ""


def test_a_cut_character_shows_as_a_replacement_at_the_end() -> None:
    deltas, rest = feed("😀".encode()[:3])
    assert deltas == ["", "", ""]
    assert rest == "\N{REPLACEMENT CHARACTER}"


def test_a_stop_string_split_inside_a_character_is_found() -> None:
    detokenizer = Detokenizer(ByteTokenizer(), ("😀",))
    shown = [detokenizer.feed(byte) for byte in "a😀b".encode()]
    assert "".join(shown) == "a"
    assert detokenizer.stopped
    assert detokenizer.finish() == ""


def test_held_text_is_shown_when_no_more_comes() -> None:
    deltas, rest = feed(b"no EN", stop=("END",))
    assert "".join(deltas) == "no "
    assert rest == "EN"
