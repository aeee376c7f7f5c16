"""JSON that users write: read like any other, and nothing of it is kept."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.json_text import parse_json
from tests.support.own_memory import Words

WORDS = Words("qjx", 300)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_it_reads_what_the_standard_library_writes(value: object) -> None:
    finite = "Infinity" not in json.dumps(value)
    if finite:
        assert parse_json(json.dumps(value)) == value
        assert parse_json(json.dumps(value, ensure_ascii=False).encode()) == value


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[1,]", b"NaN", b"Infinity", b"{} x", b'"\\ud800"', b"\xff", b"[" * 900]
)
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="line 1"):
        parse_json(text)


def test_neither_names_nor_strings_outlive_their_text() -> None:
    for number in range(WORDS.count):
        word = WORDS[number]
        assert parse_json(f'{{"{word}": "{word}"}}'.encode()) == {word: word}
    word = ""
    for _ in range(2000):
        parse_json(b'{"another name than any": "and another text than any of them"}')
    # A few lie in memory that was freed and not used again: those are transient text.
    assert WORDS.still_held() < WORDS.count // 4
