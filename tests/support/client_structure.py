"""What the official client must find where an answer follows a schema or calls tools."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionFunctionToolParam
from openai.types.shared_params import FunctionDefinition

from tests.support.client_surface import HELLO, Client


async def check_json_schema(client: Client, model: str) -> None:
    """Every choice is JSON that follows the schema, whole or streamed."""
    asked: dict[str, Any] = {
        "model": model, "messages": HELLO, "n": 2, "seed": 1, "max_tokens": 200,
        "response_format": _format(COLOUR),
    }  # fmt: skip
    answer = await client.chat.completions.create(**asked)
    for choice in answer.choices:
        assert choice.finish_reason == "stop"
        value = json.loads(choice.message.content or "")
        assert set(value) == {"colour", "sure", "why"}
        assert value["colour"] in {"blue", "green", "grey"}
        assert isinstance(value["sure"], bool)
        assert len(value["why"]) <= 12
    texts: dict[int, str] = defaultdict(str)
    async for chunk in await client.chat.completions.create(**asked, stream=True):
        for piece in chunk.choices:
            texts[piece.index] += piece.delta.content or ""
    assert dict(sorted(texts.items())) == {c.index: c.message.content for c in answer.choices}


async def check_json_object(client: Client, model: str) -> None:
    """Cut or whole, it is the beginning of an object; whole, it is one."""
    choice = (
        await client.chat.completions.create(
            model=model, messages=HELLO, max_tokens=64, response_format={"type": "json_object"}
        )
    ).choices[0]
    assert (choice.message.content or "").startswith("{")
    if choice.finish_reason == "stop":
        assert isinstance(json.loads(choice.message.content or ""), dict)


async def check_forced_call(client: Client, model: str) -> None:
    """`required`, or a function by name, makes calls whose arguments follow their schemas."""
    for tool_choice, several in (("required", False), (_named("weather"), True)):
        asked: dict[str, Any] = {
            "model": model, "messages": HELLO, "tools": [WEATHER, CLOCK], "max_tokens": 300,
            "tool_choice": tool_choice, "parallel_tool_calls": several, "seed": 2,
        }  # fmt: skip
        choice = (await client.chat.completions.create(**asked)).choices[0]
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content is None
        assert choice.message.tool_calls
        assert len(choice.message.tool_calls) == 1
        call = choice.message.tool_calls[0]
        assert call.type == "function"
        assert call.function.name in ({"weather", "clock"} if not several else {"weather"})
        arguments = json.loads(call.function.arguments)
        if call.function.name == "weather":
            assert arguments["unit"] in {"C", "F"}
            assert len(arguments["city"]) <= 8
        else:
            assert arguments == {}
        streamed: dict[int, list[str]] = defaultdict(lambda: ["", "", ""])
        ends: list[str] = []
        async for chunk in await client.chat.completions.create(**asked, stream=True):
            for piece in chunk.choices:
                ends += [piece.finish_reason] if piece.finish_reason else []
                for part in piece.delta.tool_calls or ():
                    assert part.function is not None
                    streamed[part.index][0] += part.id or ""
                    streamed[part.index][1] += part.function.name or ""
                    streamed[part.index][2] += part.function.arguments or ""
        assert ends == ["tool_calls"]
        assert [one[1:] for one in streamed.values()] == [
            [call.function.name, call.function.arguments]
        ]
        assert streamed[0][0].startswith("call_")
        follow_up = await client.chat.completions.create(
            model=model,
            max_tokens=4,
            tools=asked["tools"],
            tool_choice="none",
            messages=[
                *HELLO,
                {"role": "assistant", "content": None, "tool_calls": [call.to_dict()]},
                {"role": "tool", "tool_call_id": call.id, "content": "12 degrees"},
            ],
        )
        assert follow_up.choices[0].message.tool_calls is None
        with pytest.raises(openai.BadRequestError) as unknown:
            await client.chat.completions.create(
                model=model,
                messages=[*HELLO, {"role": "tool", "tool_call_id": "x", "content": "y"}],
            )
        assert unknown.value.param == "messages[1].tool_call_id"


async def check_offered_call(client: Client, model: str) -> None:
    """`auto`: text, or calls of functions that were offered."""
    answer = await client.chat.completions.create(
        model=model, messages=HELLO, tools=[WEATHER], n=3, max_tokens=24, seed=4
    )
    for choice in answer.choices:
        if choice.message.tool_calls:
            assert choice.finish_reason == "tool_calls"
        else:
            assert choice.message.content is not None


async def check_call_or_schema(client: Client, model: str) -> None:
    """`tools` beside `response_format`: calls, or an answer that follows the schema."""
    asked: dict[str, Any] = {
        "model": model, "messages": HELLO, "tools": [WEATHER, CLOCK], "max_tokens": 200, "seed": 4,
        "response_format": _format(COLOUR),
    }  # fmt: skip
    answer = await client.chat.completions.create(**asked, n=3)
    for choice in answer.choices:
        if choice.message.tool_calls:
            assert choice.finish_reason == "tool_calls"
            assert choice.message.content is None
        else:
            assert choice.finish_reason == "stop"
            colour = json.loads(choice.message.content or "")
            assert set(colour) == {"colour", "sure", "why"}
    forced = await client.chat.completions.create(**asked, tool_choice="required")
    assert forced.choices[0].message.tool_calls
    none = await client.chat.completions.create(**asked, tool_choice="none")
    assert none.choices[0].message.tool_calls is None
    assert set(json.loads(none.choices[0].message.content or "")) == {"colour", "sure", "why"}


def _tool(name: str, parameters: dict[str, object]) -> ChatCompletionFunctionToolParam:
    function: FunctionDefinition = {"name": name, "description": name, "parameters": parameters}
    return {"type": "function", "function": function}


def _named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def _format(schema: dict[str, object]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}


COLOUR: dict[str, object] = {
    "type": "object",
    "properties": {
        "colour": {"enum": ["blue", "green", "grey"]},
        "sure": {"type": "boolean"},
        "why": {"type": "string", "maxLength": 12},
    },
    "required": ["colour", "sure", "why"],
    "additionalProperties": False,
}
WEATHER = _tool(
    "weather",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 8},
            "unit": {"$ref": "#/$defs/Unit"},
        },
        "required": ["city", "unit"],
        "additionalProperties": False,
        "$defs": {"Unit": {"enum": ["C", "F"]}},
    },
)
CLOCK: ChatCompletionFunctionToolParam = {"type": "function", "function": {"name": "clock"}}


async def check_structure_errors(client: Client, model: str) -> None:
    """A schema or a tool that can't be followed is refused by its parameter's name."""
    refused: list[tuple[dict[str, Any], str]] = [
        ({"tools": [WEATHER, WEATHER]}, "tools"),
        ({"tools": [_tool("f", {"type": "king"})]}, "tools"),
        ({"tools": [WEATHER], "response_format": _format({"type": "king"})}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": _format({"type": "king"})}, "response_format"),
        ({"response_format": _format({"not": {}})}, "response_format"),
    ]
    for fields, param in refused:
        asked: dict[str, Any] = {"model": model, "messages": HELLO, **fields}
        with pytest.raises(openai.BadRequestError) as fault:
            await client.chat.completions.create(**asked)
        assert fault.value.param == param, fields


CHECKS = [
    check_json_schema,
    check_json_object,
    check_forced_call,
    check_offered_call,
    check_call_or_schema,
    check_structure_errors,
]
