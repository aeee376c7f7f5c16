"""Canonical JSON: one spelling per value."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.canonical import (
    AnswerModel,
    Count,
    WireModel,
    canonical_bytes,
    digest,
    length_prefixed,
    parse_canonical,
    parse_model,
)
from fleetward_api.errors import CanonicalError

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


class Point(WireModel):
    """A signed body, read strictly."""

    grid_x: Count = 0
    label: str = ""


class Answer(AnswerModel):
    """An unsigned answer, which may grow."""

    grid_x: Count = 0


@given(VALUES)
def test_a_value_survives_and_its_bytes_are_its_only_spelling(value: Any) -> None:
    data = canonical_bytes(value)
    assert parse_canonical(data) == value
    assert canonical_bytes(parse_canonical(data)) == data
    assert b"\n" not in data


@given(VALUES, st.data())
def test_the_order_of_keys_does_not_matter(value: Any, data: st.DataObject) -> None:
    def shuffled(item: Any) -> Any:
        if isinstance(item, dict):
            keys = data.draw(st.permutations(list(item)))
            return {key: shuffled(item[key]) for key in keys}
        return [shuffled(part) for part in item] if isinstance(item, list) else item

    assert canonical_bytes(shuffled(value)) == canonical_bytes(value)


@given(VALUES, st.data())
def test_no_changed_byte_reads_as_the_same_value(value: Any, data: st.DataObject) -> None:
    good = bytearray(canonical_bytes(value))
    at = data.draw(st.integers(0, len(good) - 1))
    good[at] ^= data.draw(st.integers(1, 255))
    try:
        other = parse_canonical(bytes(good))
    except CanonicalError:
        return
    # `true == 1` in Python, so compare what was written.
    assert json.dumps(other, sort_keys=True) != json.dumps(value, sort_keys=True)


@pytest.mark.parametrize(
    "spelling",
    [
        b'{"b":1,"a":2}',
        b'{"a": 1}',
        b'{"a":1}\n',
        b' {"a":1}',
        b'{"a":1,"a":1}',
        b'{"a":{"b":1,"b":2}}',
        b"1.0",
        b"1e3",
        b"-0",
        b"01",
        b"NaN",
        b"Infinity",
        b'"\\u0041"',
        b'"\\/"',
        b'"\\u00e9"',
        b'"\\ud800"',
        b'"\xff"',
        b'\xef\xbb\xbf"bom"',
        '"utf-16"'.encode("utf-16"),
        b"9223372036854775808",
        b"1" * 5000,
        b"[" * 100_000,
        b"[" * 40 + b"]" * 40,
        b"",
        b"{}{}",
    ],
)
def test_every_other_spelling_is_refused(spelling: bytes) -> None:
    with pytest.raises(CanonicalError):
        parse_canonical(spelling)


def test_a_key_named_twice_is_named() -> None:
    with pytest.raises(CanonicalError, match="a key twice"):
        parse_canonical(b'{"a":1,"a":2}')


@pytest.mark.parametrize(
    "value",
    [
        1.0,
        float("nan"),
        {1: "a"},
        {"a": {2}},
        MappingProxyType({}),
        b"raw",
        2**63,
        -(2**63) - 1,
        "\ud800",
    ],
)
def test_what_json_cannot_say_once_is_refused(value: Any) -> None:
    with pytest.raises(CanonicalError):
        canonical_bytes(value)


def test_keys_sort_by_code_point_and_text_is_not_normalised() -> None:
    data = canonical_bytes({"\U0001f600": 1, "\uffff": 2, "é": 3, "e\u0301": 4, "Z": 5})
    order = ["Z", "e\u0301", "é", "\uffff", "\U0001f600"]
    assert list(json.loads(data)) == order


def test_a_model_is_written_in_camel_case_with_every_field() -> None:
    assert canonical_bytes(Point(grid_x=4)) == b'{"gridX":4,"label":""}'


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"gridX":4}', "canonical form of a Point"),
        (b'{"grid_x":4,"label":""}', "canonical form of a Point"),
        (b'{"gridX":true,"label":""}', "gridX"),
        (b'{"gridX":"4","label":""}', "gridX"),
        (b'{"gridX":-1,"label":""}', "gridX"),
        (b'{"extra":1,"gridX":4,"label":""}', "extra"),
        (b'{"gridX":4,"label":null}', "label"),
        (b"[]", "Point"),
    ],
)
def test_a_model_is_read_only_from_its_own_bytes(data: bytes, words: str) -> None:
    with pytest.raises(CanonicalError, match=words):
        parse_model(Point, data)


def test_an_answer_may_carry_fields_of_a_newer_member() -> None:
    assert Answer.model_validate_json(b'{"gridX":2,"later":1}') == Answer(grid_x=2)


def test_a_wire_model_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Point().label = "x"  # type: ignore[misc]


@given(st.lists(st.binary(max_size=12)), st.lists(st.binary(max_size=12)))
def test_length_prefixing_is_injective(a: list[bytes], b: list[bytes]) -> None:
    assert (length_prefixed(*a) == length_prefixed(*b)) == (a == b)


def test_digest_of_nothing_is_the_published_one() -> None:
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert digest(b"") == f"sha256:{empty}"
