"""How a model is told of tools, and how its calls are written, read and enforced.

The demo model's family was tuned on calls between `<tool_call>` marks, as a JSON list of names and
arguments; its chat template has no place for tools, so they are told in the system message. Any
model that follows such a message can be used this way, whatever its template.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from fleetward_api.json_text import parse_json
from fleetward_engine.grammar import json_rule

OPEN: Final = "<tool_call>"
CLOSE: Final = "</tool_call>"
_NO_ARGUMENTS: Final[Mapping[str, object]] = {
    "type": "object",
    "properties": {},
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call. `parameters` is a JSON schema; None: no arguments.

    `strict` False lets keywords of the schema pass that can't be enforced.
    """

    name: str
    description: str
    parameters: Mapping[str, object] | None
    strict: bool


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call: the function's name and its arguments as JSON text."""

    name: str
    arguments: str


def offer(tools: Sequence[Tool]) -> str:
    """What the system message says of the tools."""
    told = [
        {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters or _NO_ARGUMENTS,
        }
        for tool in tools
    ]
    listed = "\n".join(json.dumps(one, ensure_ascii=False) for one in told)
    return (
        "These functions can be called, each told as JSON with the schema of its parameters:\n"
        f"<tools>\n{listed}\n</tools>\n\n"
        "When one of them helps to answer, call it by writing exactly this and nothing after it:\n"
        f'{OPEN}[{{"name": "NAME", "arguments": {{"PARAMETER": "VALUE"}}}}]{CLOSE}\n'
        "Several calls go into the same list. Otherwise answer without a call."
    )


def written(calls: Sequence[ToolCall]) -> str:
    """Earlier calls of the conversation, as the model itself would have written them."""
    inner = ", ".join(
        f'{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}' for call in calls
    )
    return f"{OPEN}[{inner}]{CLOSE}"


def result(name: str, content: str) -> str:
    """What a call came back with."""
    return f"<tool_response>\n{json.dumps(name)}: {content}\n</tool_response>"


def call_grammar(
    tools: Sequence[Tool], *, forced: bool, several: bool, answer: str | None = None
) -> str:
    """A Lark grammar: text that may end in calls, or, `forced`, calls alone.

    Args:
        tools: those that may be called.
        forced: whether the answer must be a call.
        several: whether a list may hold more than one call.
        answer: the right side of a rule (`json_rule`) that an answer without a call follows; a call
            then has no text before it. None: any text.

    Raises:
        GrammarRefused: a schema is nested too deeply.
    """
    more = '(", " call)*' if several else ""
    lines = [f'calls: "[" call {more} "]{CLOSE}"']
    lines += [f"call: {' | '.join(f'call_{number}' for number in range(len(tools)))}"]
    for number, tool in enumerate(tools):
        head = json.dumps(f'{{"name": "{tool.name}", "arguments": ')
        lines += [f'call_{number}: {head} arguments_{number} "}}"']
        rule = json_rule(tool.parameters or _NO_ARGUMENTS, lenient=not tool.strict)
        lines += [f"arguments_{number}: {rule}"]
    if forced:
        return "\n".join([f'start: "{OPEN}" calls', *lines])
    if answer is not None:
        return "\n".join([f'start: answer | "{OPEN}" calls', f"answer: {answer}", *lines])
    # Text goes on up to the first mark; from there on it is a call.
    text = [
        "start: TEXT | to_mark calls",
        f"TEXT: /(?s:.*)/ & ~/(?s:.*){OPEN}(?s:.*)/",
        f"to_mark[lazy]: /(?s:.*){OPEN}/",
    ]
    return "\n".join([*text, *lines])


class ToolCallReader:
    """Splits a growing text into what is shown and the calls at its end."""

    def __init__(self) -> None:
        self._held = ""
        self._inside: str | None = None

    def feed(self, delta: str) -> str:
        """Take a delta; returns the text that may be shown now."""
        if self._inside is not None:
            self._inside += delta
            return ""
        text = self._held + delta
        mark = text.find(OPEN)
        if mark >= 0:
            self._held, self._inside = "", text[mark + len(OPEN) :]
            return text[:mark]
        keep = next(n for n in range(min(len(OPEN) - 1, len(text)), -1, -1) if _tail(text, n))
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> tuple[str, tuple[ToolCall, ...]]:
        """The rest, once no more will come: text, and the calls; calls that were cut are text."""
        held, inside = self._held, self._inside
        self._held, self._inside = "", None
        if inside is None:
            return held, ()
        calls = _read_calls(inside.removesuffix(CLOSE)) if inside.endswith(CLOSE) else None
        return ("", calls) if calls else (OPEN + inside, ())


def _tail(text: str, length: int) -> bool:
    return OPEN.startswith(text[len(text) - length :])


def _read_calls(text: str) -> tuple[ToolCall, ...] | None:
    try:
        items = parse_json(text)
    except ValueError:
        return None
    if not isinstance(items, list):
        return None
    calls: list[ToolCall] = []
    for item in items:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            return None
        try:
            arguments = orjson.dumps(item.get("arguments", {})).decode()
        except TypeError:
            # A whole number that no client's parser is bound to take.
            return None
        calls.append(ToolCall(item["name"], arguments))
    return tuple(calls)
