"""Hypothesis strategies for values near a structural schema: inside, on its edges, and outside."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any, TypeAlias

from hypothesis import strategies as st

Schema: TypeAlias = dict[str, Any]

# fmt: off
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 1.0, 1.5, 2**31, 2**63, "", "x", "None", "1", [], [None], {}, {"x": 1}]
)
"""Values of any type, for places that expect another."""

EXAMPLES = (
    "1s", "0s", "1h", "24h", "48h", "99999h", "1d", "1.5h", "1m1m1m1m", "1m1m1m1m1m", "-1s", "1s\n",
    "1Gi", "1gi", "0", "1m", "1e3", "+1", "1.5.1", "1.Gi", "1Mi ", "8Gi", "9999999999999999",
    "50%", "101%", "1000%", "%", "a", "A", "a-b", "-a", "a.b", "a/b", "a b", "..", "é",
    "hf://org/m@main", "oci://r/m:1", "s3://b/k", "http://x", "package://", "file://x", "pvc://c",
    "package://a/../b", "file:///a/..", "file:///../a", "file:///a/b", "pvc://c/", "pvc:///x",
    "2027-01-31T00:00:00Z", "2027-02-29T00:00:00Z", "2027-01-31", "1999-01-31T00:00:00Z",
    "sha256:" + "a" * 64, "sha256:" + "A" * 64, "sha256:a", "https://x", "https://x y",
)
"""Texts that one or another pattern takes, or only just does not."""
# fmt: on


def values_for(schema: Schema) -> st.SearchStrategy[Any]:
    """Mostly values of the schema's type, inside and just outside its bounds; sometimes others."""
    return _values_for(json.dumps(schema))


@cache
def _values_for(schema_text: str) -> st.SearchStrategy[Any]:
    inside = typed(json.loads(schema_text))
    # A die rather than a union, so that the odd values stay rare.
    return st.integers(0, 7).flatmap(lambda die: ODD if die == 0 else inside)


def minimal(schema: Schema) -> st.SearchStrategy[Any]:
    """Objects with the required fields alone."""
    fields = schema.get("properties", {})
    return st.fixed_dictionaries({name: typed(fields[name]) for name in schema.get("required", ())})


def typed(schema: Schema) -> st.SearchStrategy[Any]:
    """Values of the schema's type, most of them inside its bounds."""
    if "enum" in schema:
        near = str(schema["enum"][0]).lower()
        return st.sampled_from([*schema["enum"], *schema["enum"], near])
    if schema.get("x-kubernetes-int-or-string"):
        numbers = st.one_of(st.integers(-2, 200), st.sampled_from([2**20, 2**30, 2**62]))
        return st.one_of(numbers, _text(schema))
    match schema.get("type"):
        case "boolean":
            return st.booleans()
        case "integer":
            low, high = schema["minimum"], schema["maximum"]
            some = st.integers(low, min(high, low + 100))
            return st.one_of(some, some, st.sampled_from([low, high, low - 1, high + 1]))
        case "string":
            return _text(schema)
        case "array":
            return _array(schema)
        case "object":
            return _object(schema)
        case _:
            return ODD


def _text(schema: Schema) -> st.SearchStrategy[str]:
    most, least = schema["maxLength"], schema.get("minLength", 0)
    edges = st.tuples(
        st.sampled_from("aé1"), st.sampled_from([least, max(least - 1, 0), most, most + 1])
    ).map(lambda drawn: drawn[0] * drawn[1])
    any_text = st.one_of(st.text(max_size=6), st.sampled_from(EXAMPLES), edges)
    if "pattern" not in schema:
        return any_text
    pattern = re.compile(schema["pattern"])
    fitting = st.from_regex(schema["pattern"][:-1] + r"\Z")
    known = [text for text in EXAMPLES if pattern.search(text)]
    if known:
        fitting = st.one_of(st.sampled_from(known), st.sampled_from(known), fitting)
    return st.integers(0, 3).flatmap(lambda die: any_text if die == 0 else fitting)


def _array(schema: Schema) -> st.SearchStrategy[list[Any]]:
    entries = typed(schema["items"])
    few = st.lists(entries, max_size=3)
    too_many = schema["maxItems"] + 1
    if too_many > 40:
        return few
    return st.one_of(few, few, few, entries.map(lambda entry: [entry] * too_many))


def _object(schema: Schema) -> st.SearchStrategy[dict[str, Any]]:
    if "additionalProperties" in schema:
        keys = st.sampled_from(["team", "example.com/team", "", "-x", "a" * 64, "a/b/c", "é"])
        return st.dictionaries(keys, typed(schema["additionalProperties"]), max_size=2)
    fields = schema.get("properties", {})
    required = {name: typed(fields[name]) for name in schema.get("required", ())}
    others = {name: typed(each) for name, each in fields.items() if name not in required}
    return st.fixed_dictionaries(required, optional=others)
