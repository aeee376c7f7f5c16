"""Hypothesis strategies for values near a structural schema: inside, on its edges, and outside."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from hypothesis import strategies as st

_ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        -1,
        1.0,
        1.5,
        2**31,
        2**63,
        "",
        "x",
        "None",
        "1",
        [],
        [None],
        {},
        {"x": 1},
    ]
)
_TEXTS: st.SearchStrategy[str] = st.one_of(
    st.text(max_size=6),
    st.sampled_from(
        [
            *("1s", "0s", "1h", "99999h", "1d", "1.5h", "1m1m1m1m", "1m1m1m1m1m", "-1s", "1s\n"),
            *("1Gi", "1gi", "0", "1m", "1e3", "+1", "1.5.1", "1.Gi", "1Mi ", "9999999999999999"),
            *("50%", "101%", "1000%", "%", "a", "A", "a-b", "-a", "a.b", "a/b", "a b", "..", "é"),
            *("hf://org/m@main", "oci://r/m:1", "s3://b/k", "http://x", "package://", "file://x"),
            *(
                "package://a/../b",
                "file:///a/..",
                "file:///../a",
                "pvc://c",
                "pvc://c/",
                "pvc:///x",
            ),
            *("2027-01-31T00:00:00Z", "2027-02-29T00:00:00Z", "2027-01-31", "1999-01-31T00:00:00Z"),
            *("sha256:" + "a" * 64, "sha256:" + "A" * 64, "sha256:a", "https://x", "https://x y"),
        ]
    ),
)


def values_for(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Mostly values of the schema's type, inside and just outside its bounds; sometimes others."""
    return _values_for(json.dumps(schema))


@cache
def _values_for(schema_text: str) -> st.SearchStrategy[Any]:
    inside = _typed(json.loads(schema_text))
    # A die rather than a union, so that the odd values stay rare.
    return st.integers(0, 7).flatmap(lambda die: _ODD if die == 0 else inside)


def _typed(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "enum" in schema:
        near = [str(value).lower() for value in schema["enum"]]
        return st.sampled_from([*schema["enum"], *schema["enum"], *near])
    if schema.get("x-kubernetes-int-or-string"):
        return st.one_of(st.integers(-2, 200), st.sampled_from([2**20, 2**30, 2**62]), _TEXTS)
    match schema.get("type"):
        case "boolean":
            return st.booleans()
        case "integer":
            low, high = schema.get("minimum", 0), schema.get("maximum", 100)
            edges = st.sampled_from([low, high, low - 1, high + 1])
            return st.one_of(st.integers(low, min(high, low + 100)), edges)
        case "string":
            return _text(schema)
        case "array":
            return _array(schema)
        case "object":
            return _object(schema)
        case _:
            return _ODD


def _text(schema: dict[str, Any]) -> st.SearchStrategy[str]:
    most, least = schema.get("maxLength", 10), schema.get("minLength", 0)
    lengths = [least, max(least - 1, 0), most, most + 1]
    edges = st.builds(
        lambda letter, n: letter * n, st.sampled_from("aé1"), st.sampled_from(lengths)
    )
    if "pattern" in schema:
        return st.one_of(_TEXTS, edges, st.from_regex(schema["pattern"][:-1] + r"\Z"))
    return st.one_of(_TEXTS, edges)


def _array(schema: dict[str, Any]) -> st.SearchStrategy[list[Any]]:
    few = st.lists(_typed(schema["items"]), max_size=3)
    too_many = schema["maxItems"] + 1
    many = _typed(schema["items"]).map(lambda item: [item] * too_many)
    return st.one_of(few, few, few, many) if too_many <= 33 else few


def _object(schema: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    if "additionalProperties" in schema:
        keys = st.sampled_from(["team", "example.com/team", "", "-x", "a" * 64, "a/b/c", "é"])
        return st.dictionaries(keys, _typed(schema["additionalProperties"]), max_size=3)
    fields = schema.get("properties", {})
    required = {name: _typed(fields[name]) for name in schema.get("required", ())}
    others = {name: _typed(each) for name, each in fields.items() if name not in required}
    return st.fixed_dictionaries(required, optional=others)
