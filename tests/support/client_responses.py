"""What the official client must find at `/v1/responses`."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai.types.responses import Response

COLOUR: dict[str, Any] = {
    "type": "object",
    "properties": {"colour": {"enum": ["blue", "grey"]}},
    "required": ["colour"],
    "additionalProperties": False,
}
TOOL: dict[str, Any] = {
    "type": "function",
    "name": "paint",
    "description": "Paints the sea.",
    "parameters": COLOUR,
    "strict": True,
}
ASKED = "Which colour is the sea? " * 4


async def check_response(client: openai.AsyncOpenAI, model: str) -> None:
    """Text in, text out, of the official type in every field; nothing is stored."""
    answer = await client.responses.create(
        model=model, input=ASKED, instructions="Be brief.", max_output_tokens=5, temperature=0
    )
    Response.model_validate(answer.to_dict())
    assert answer.status in {"completed", "incomplete"}
    assert answer.to_dict()["store"] is False
    assert answer.usage is not None
    assert answer.usage.output_tokens <= 5
    if answer.status == "incomplete":
        assert answer.incomplete_details is not None
        assert answer.incomplete_details.reason == "max_output_tokens"
    # What came back goes in again, beside the next question.
    again = await client.responses.create(
        model=model,
        max_output_tokens=3,
        input=[
            {"role": "user", "content": ASKED},
            *(item.to_dict() for item in answer.output),  # type: ignore[list-item]
            {"role": "user", "content": [{"type": "input_text", "text": "Sure?"}]},
        ],
    )
    assert again.usage is not None
    assert again.usage.input_tokens > answer.usage.input_tokens


async def check_streamed_response(client: openai.AsyncOpenAI, model: str) -> None:
    """Events in their order, numbered; their end holds what the whole answer does."""
    asked: dict[str, Any] = {
        "model": model, "input": ASKED, "max_output_tokens": 6, "temperature": 0,
    }  # fmt: skip
    whole = await client.responses.create(**asked)
    events = [event async for event in await client.responses.create(**asked, stream=True)]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert kinds[-4:-1] == ["output_text.done", "content_part.done", "output_item.done"]
    assert set(kinds[4:-4]) <= {"output_text.delta"}
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert deltas == whole.output_text
    last = events[-1]
    assert last.type in {"response.completed", "response.incomplete"}
    Response.model_validate(last.response.to_dict())
    assert last.response.output_text == whole.output_text


async def check_response_schema(client: openai.AsyncOpenAI, model: str) -> None:
    """`text.format` holds the text to its schema."""
    shape: dict[str, Any] = {"type": "json_schema", "name": "c", "schema": COLOUR, "strict": True}
    asked: dict[str, Any] = {"model": model, "input": ASKED, "text": {"format": shape}}
    answer = await client.responses.create(**asked)
    assert answer.status == "completed"
    assert json.loads(answer.output_text)["colour"] in {"blue", "grey"}


async def check_response_call(client: openai.AsyncOpenAI, model: str) -> None:
    """A call is an item; what it came back with is told in the next request."""
    asked: dict[str, Any] = {
        "model": model, "input": ASKED, "tools": [TOOL], "parallel_tool_calls": False,
        "tool_choice": {"type": "function", "name": "paint"}, "temperature": 0,
    }  # fmt: skip
    answer = await client.responses.create(**asked)
    (call,) = answer.output
    assert call.type == "function_call"
    assert call.name == "paint"
    assert json.loads(call.arguments)["colour"] in {"blue", "grey"}
    events = [event async for event in await client.responses.create(**asked, stream=True)]
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds[2:] == [
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
        "output_item.done", "completed",
    ]  # fmt: skip
    told = await client.responses.create(
        model=model,
        max_output_tokens=3,
        input=[
            {"role": "user", "content": ASKED},
            call.to_dict(),
            {"type": "function_call_output", "call_id": call.call_id, "output": "done"},
        ],
    )
    assert told.output[0].type == "message"


async def check_response_errors(client: openai.AsyncOpenAI, model: str) -> None:
    """What would need a store, or is not done, is refused by this API's own names."""
    unknown_call = {"type": "function_call_output", "call_id": "x", "output": "y"}
    refused: list[tuple[dict[str, Any], str]] = [
        ({"store": True}, "store"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"reasoning": {"effort": "high"}}, "reasoning"),
        ({"truncation": "auto"}, "truncation"),
        ({"input": [unknown_call]}, "input[0].call_id"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
         "input[0].content[0]"),
        ({"input": [{"type": "reasoning", "summary": []}]}, "input[0]"),
        ({"input": "x" * 100_000}, "input"),
        ({"max_output_tokens": 10**8}, "max_output_tokens"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.name"),
        ({"text": {"format": {"type": "json_schema", "name": "x", "strict": True,
                              "schema": {"type": "king"}}}}, "text.format"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": "required"}, "tool_choice"),
    ]  # fmt: skip
    for fields, param in refused:
        asked: dict[str, Any] = {"model": model, "input": ASKED, **fields}
        with pytest.raises(openai.BadRequestError) as fault:
            await client.responses.create(**asked)
        assert fault.value.param == param, fields


CHECKS = [
    check_response,
    check_streamed_response,
    check_response_schema,
    check_response_call,
    check_response_errors,
]
