"""Grammars: every text that is drawn along the masks is one that the schema accepts."""

from __future__ import annotations

import contextlib
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetward_engine.errors import GrammarFailed, GrammarRefused
from fleetward_engine.grammar import MAX_SOURCE, Grammar, GrammarCompiler, GrammarState
from fleetward_engine.request import SamplingParams
from fleetward_engine.tokenizer import ByteTokenizer
from tests.support.engine_core import make_bench, make_request
from tests.support.grammar import tokens_of

BYTES = ByteTokenizer()
COMPILER = GrammarCompiler(BYTES)
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"enum": [1, 22, 333]}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def follow(grammar: Grammar, text: str) -> GrammarState:
    """The state after a text, each token of which must have been allowed."""
    state = grammar.start()
    for token in text.encode():
        assert token in tokens_of(state.allowed()), (text, chr(token))
        state.advance(token)
    return state


def draw(grammar: Grammar, seed: int, *, limit: int = 400) -> str | None:
    """A text drawn at random along the masks; None when it grew too long."""
    rng = random.Random(seed)  # noqa: S311 - test data
    state, data = grammar.start(), bytearray()
    while not state.finished and len(data) < limit:
        token = rng.choice(tokens_of(state.allowed()))
        state.advance(token)
        data += BYTES.token_bytes(token)
    return data.decode() if state.finished else None


@given(seed=st.integers(0, 2**32))
def test_a_text_drawn_along_the_masks_follows_the_schema(seed: int) -> None:
    text = draw(COMPILER.json_schema(PERSON), seed)
    assert text is not None
    value = json.loads(text)
    assert set(value) == {"name", "age"}
    assert len(value["name"]) <= 6
    assert value["age"] in {1, 22, 333}


# Control characters are left out: the library lets a model write only common escapes.
words = st.text(alphabet='ab 9é😀"\\/\n\t{}[],:', max_size=5)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=50)
@given(value=st.dictionaries(words, values, max_size=3), compact=st.booleans())
def test_any_object_is_accepted_as_it_is_commonly_written(
    value: dict[str, Any], compact: bool
) -> None:
    separators = (",", ":") if compact else (", ", ": ")
    text = json.dumps(value, ensure_ascii=False, separators=separators)
    assert follow(COMPILER.json_schema({"type": "object"}), text).finished


def test_white_space_cannot_go_on() -> None:
    grammar = COMPILER.json_schema({"type": "object"})
    for text in ("{", '{"a": ', '{"a": 1, ', '{"a": []'):
        state = follow(grammar, text)
        assert not set(tokens_of(state.allowed())) & set(b" \n\t\r") or text == '{"a": []'
    state = follow(grammar, "{}")
    assert state.finished


def test_states_of_one_grammar_go_their_own_ways() -> None:
    grammar = COMPILER.json_schema({"enum": ["a", "b"]})
    first, second = grammar.start(), grammar.start()
    for token in b'"a':
        first.advance(token)
    assert chr(tokens_of(second.allowed())[0]) == '"'
    assert tokens_of(first.allowed()) == [ord('"')]
    with pytest.raises(GrammarFailed):
        first.advance(ord("b"))
    assert follow(grammar, '"b"').finished


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "king"},
        {"enum": []},
        {"type": "string", "pattern": "(a"},
        {"type": "string", "pattern": "(?=a)b"},
        {"type": "string", "minLength": 5, "maxLength": 2},
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "#/$defs/absent"},
        {"not": {"type": "string"}},
        {"type": "string", "format": "king"},
        {"properties": 5},
        nested(200),
        nested(500),
        {"enum": [f"value {number}" for number in range(5000)]},
        {"type": "string", "maxLength": "x"},
        {"$ref": "#"},
    ],
    ids=lambda schema: str(schema)[:40],
)
def test_schemas_that_cannot_be_followed_are_refused_in_one_line(schema: dict[str, Any]) -> None:
    with pytest.raises(GrammarRefused) as refusal:
        COMPILER.json_schema(schema)
    assert "\n" not in str(refusal.value)
    assert str(refusal.value)


def test_a_lenient_schema_drops_what_cannot_be_enforced() -> None:
    schema = {**PERSON, "x-guidance": {"whitespace_flexible": True}, "not": {"required": ["b"]}}
    with pytest.raises(GrammarRefused, match="not"):
        COMPILER.json_schema(schema)
    grammar = COMPILER.json_schema(schema, lenient=True)
    assert follow(grammar, '{"name": "x", "age": 22}').finished
    assert ord(" ") not in tokens_of(follow(grammar, "{").allowed())


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "(a{1,1000}){1,1000}"},
        {"type": "string", "minLength": 10**7},
        {"type": "array", "minItems": 10**6},
        {"type": "object", "properties": {f"p{n}": {"type": "null"} for n in range(900)}},
        {"anyOf": [{"type": "object", "properties": {f"a{n}": {}}} for n in range(300)]},
    ],
    ids=lambda schema: str(schema)[:40],
)
def test_schemas_that_ask_for_the_absurd_end_their_own_text_only(schema: dict[str, Any]) -> None:
    assert len(json.dumps(schema)) < MAX_SOURCE
    with contextlib.suppress(GrammarRefused, GrammarFailed):
        state = COMPILER.json_schema(schema).start()
        for _ in range(20):
            state.advance(tokens_of(state.allowed())[0])


def test_a_model_without_an_end_follows_no_grammar() -> None:
    class Endless(ByteTokenizer):
        @property
        def eos_token_ids(self) -> frozenset[int]:
            return frozenset()

    with pytest.raises(GrammarRefused, match="no token that ends"):
        GrammarCompiler(Endless())


def test_a_request_ends_with_its_grammar_and_batches_with_free_ones() -> None:
    bench = make_bench(num_blocks=128)
    grammar = COMPILER.json_schema(PERSON)
    params = SamplingParams(max_tokens=200)
    bound = [
        make_request(f"bound {number}", [number], sampling=params, grammar=grammar)
        for number in range(3)
    ]
    free = make_request("free", [1, 2, 3], max_tokens=20)
    last = bench.run(*bound, free)
    assert [output.finish_reason for output in last] == ["stop", "stop", "stop", "length"]
    for request in bound:
        assert set(json.loads(bench.text(request.request_id))) == {"name", "age"}


def test_preemption_does_not_disturb_a_grammar() -> None:
    texts = []
    for preempting in (False, True):
        bench = make_bench(num_blocks=128)
        request = make_request(
            "r", [7], sampling=SamplingParams(max_tokens=200), grammar=COMPILER.json_schema(PERSON)
        )
        bench.engine.add_request(request)
        while bench.engine.has_work:
            bench.step()
            if preempting:
                bench.engine.preempt("r")
        texts.append(bench.text("r"))
    assert texts[0] == texts[1]


def test_a_grammar_that_fails_ends_its_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_state: GrammarState) -> bytes:
        raise GrammarFailed("too complex")

    bench = make_bench()
    bound = make_request("bound", [1], grammar=COMPILER.json_schema(PERSON), max_tokens=20)
    monkeypatch.setattr(GrammarState, "allowed", fail)
    ended, free = bench.run(bound, make_request("free", [1, 2], max_tokens=6))
    assert (ended.finish_reason, ended.error, ended.refused) == ("error", "too complex", True)
    assert free.finish_reason == "length"
    assert bench.engine.stats().kv_blocks_used == 0
