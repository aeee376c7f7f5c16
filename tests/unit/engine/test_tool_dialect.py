"""Calls: the grammar lets through what the reader understands, and nothing else that looks so."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_engine.errors import GrammarFailed
from fleetward_engine.grammar import GrammarCompiler, json_rule
from fleetward_engine.tokenizer import ByteTokenizer
from fleetward_engine.tool_dialect import (
    CLOSE,
    OPEN,
    Tool,
    ToolCall,
    ToolCallReader,
    call_grammar,
    offer,
    written,
)
from tests.support.grammar import tokens_of

COMPILER = GrammarCompiler(ByteTokenizer())
CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = [
    Tool("weather", "How it is outside.", CITY, strict=True),
    Tool("clock", "", None, strict=False),
]
WEATHER = '{"name": "weather", "arguments": {"city": "Oslo"}}'
CLOCK = '{"name": "clock", "arguments": {}}'


def accepts(
    text: str, *, forced: bool = False, several: bool = True, answer: str | None = None
) -> bool:
    """Whether the text is whole under the grammar."""
    grammar = call_grammar(TOOLS, forced=forced, several=several, answer=answer)
    state = COMPILER.lark(grammar).start()
    for byte in [*text.encode(), ByteTokenizer.END]:
        if byte not in tokens_of(state.allowed()):
            return False
        state.advance(byte)
    return True


@pytest.mark.parametrize(
    ("text", "free", "forced"),
    [
        ("", True, False),
        ("It is <b>cold</b> outside.", True, False),
        (f"{OPEN[:-1]} is no mark", True, False),
        (OPEN, False, False),
        (f"{OPEN}[]{CLOSE}", False, False),
        (f"{OPEN}[{WEATHER}]{CLOSE}", True, True),
        (f"{OPEN}[{WEATHER}, {CLOCK}]{CLOSE}", True, True),
        (f"Let me see. {OPEN}[{CLOCK}]{CLOSE}", True, False),
        (f"{OPEN}[{WEATHER}]{CLOSE} and more", False, False),
        (f'{OPEN}[{{"name": "king", "arguments": {{}}}}]{CLOSE}', False, False),
        (f'{OPEN}[{{"name": "weather", "arguments": {{}}}}]{CLOSE}', False, False),
        (f"{OPEN} text", False, False),
    ],
)
def test_what_the_grammar_takes(text: str, free: bool, forced: bool) -> None:
    assert accepts(text) is free
    assert accepts(text, forced=True) is forced


def test_one_call_alone_where_only_one_may_be_made() -> None:
    assert accepts(f"{OPEN}[{WEATHER}]{CLOSE}", several=False)
    assert not accepts(f"{OPEN}[{WEATHER}, {CLOCK}]{CLOSE}", several=False)


@pytest.mark.parametrize(
    ("text", "auto", "forced"),
    [
        ('{"city": "Oslo"}', True, False),
        (f"{OPEN}[{WEATHER}, {CLOCK}]{CLOSE}", True, True),
        (f'{{"city": "{OPEN}[]{CLOSE}"}}', True, False),
        ('{"town": "Oslo"}', False, False),
        ("", False, False),
        ("It is cold.", False, False),
        (f'{{"city": "Oslo"}}{OPEN}[{CLOCK}]{CLOSE}', False, False),
        (f"{OPEN}[{CLOCK}]{CLOSE}{{}}", False, False),
    ],
)
def test_an_answer_without_a_call_follows_its_own_schema(
    text: str, auto: bool, forced: bool
) -> None:
    answer = json_rule(CITY, lenient=False)
    assert accepts(text, answer=answer) is auto
    assert accepts(text, forced=True, answer=answer) is forced


def read(text: str, cuts: list[int]) -> tuple[str, list[str], tuple[ToolCall, ...]]:
    """The whole text shown, what was shown before the end, and the calls."""
    reader = ToolCallReader()
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    shown = [reader.feed(text[a:b]) for a, b in pairwise(places)]
    rest, calls = reader.finish()
    return "".join(shown) + rest, shown, calls


@given(
    before=st.text(alphabet="a<>tol_c/ ", max_size=20).filter(lambda text: OPEN not in text),
    calls=st.lists(
        st.builds(
            ToolCall,
            st.sampled_from(["weather", "clock"]),
            st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2).map(json.dumps),
        ),
        max_size=3,
    ),
    cuts=st.lists(st.integers(0, 300), max_size=6),
)
def test_calls_are_read_however_the_text_is_cut(
    before: str, calls: list[ToolCall], cuts: list[int]
) -> None:
    text = before + (written(calls) if calls else "")
    shown, pieces, found = read(text, cuts)
    assert shown == before
    assert not any(OPEN in piece for piece in pieces)
    assert [(call.name, json.loads(call.arguments)) for call in found] == [
        (call.name, json.loads(call.arguments)) for call in calls
    ]


@pytest.mark.parametrize(
    "text",
    [
        f"{OPEN}[{WEATHER}",
        f"{OPEN}[{WEATHER}]</tool_cal",
        f"{OPEN}nonsense{CLOSE}",
        f'{OPEN}[{{"name": 5}}]{CLOSE}',
        f"{OPEN}{{}}{CLOSE}",
        f"{OPEN}[]{CLOSE}",
        "ends with <tool",
        f'{{"city": "{OPEN}[]{CLOSE}"}}',
        f'{{"city": "{OPEN}[{{\\"name\\": \\"clock\\", \\"arguments\\": {{}}}}]{CLOSE}',
    ],
)
def test_what_is_no_whole_call_stays_text(text: str) -> None:
    assert read(text, [3, 9])[::2] == (text, ())


def test_the_offer_tells_every_function_with_its_schema() -> None:
    told = offer(TOOLS)
    for tool in TOOLS:
        assert f'"name": "{tool.name}"' in told
    assert json.dumps(CITY) in told


def test_a_grammar_refuses_a_token_it_did_not_allow() -> None:
    state = COMPILER.lark(call_grammar(TOOLS, forced=True, several=True)).start()
    with pytest.raises(GrammarFailed):
        state.advance(ord("x"))
