"""What the official client must find at any base URL that serves a model: engine or gateway.

Each check takes a client and a model's name and holds whatever the model says.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam
from openai.types.shared_params import FunctionDefinition

HELLO: list[ChatCompletionMessageParam] = [
    {"role": "user", "content": "Name the colour of the sea, in one word or more. " * 3}
]
Client = openai.AsyncOpenAI


async def check_choices(client: Client, model: str) -> None:
    """`n` choices, numbered; a seed makes the call repeatable and not its choices the same."""
    answers = [
        await client.chat.completions.create(
            model=model, messages=HELLO, n=3, seed=11, max_tokens=6, temperature=1.5
        )
        for _ in range(2)
    ]
    texts = [[choice.message.content for choice in answer.choices] for answer in answers]
    assert [choice.index for choice in answers[0].choices] == [0, 1, 2]
    assert texts[0] == texts[1]
    usage = answers[0].usage
    assert usage is not None
    single = await client.chat.completions.create(model=model, messages=HELLO, max_tokens=1)
    assert single.usage is not None
    assert usage.prompt_tokens == single.usage.prompt_tokens
    assert 3 <= usage.completion_tokens <= 18
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


async def check_streamed_choices(client: Client, model: str) -> None:
    """Streamed, the choices are those of the whole answer; each opens and ends by itself."""
    asked: dict[str, Any] = {"model": model, "messages": HELLO, "n": 3, "seed": 5, "max_tokens": 6}
    whole = await client.chat.completions.create(**asked)
    stream = await client.chat.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    )
    texts: dict[int, str] = defaultdict(str)
    ends: dict[int, str] = {}
    last = None
    async for chunk in stream:
        last = chunk
        for choice in chunk.choices:
            assert choice.index not in ends
            texts[choice.index] += choice.delta.content or ""
            if choice.finish_reason is not None:
                ends[choice.index] = choice.finish_reason
    assert dict(sorted(texts.items())) == {c.index: c.message.content for c in whole.choices}
    assert ends == {c.index: c.finish_reason for c in whole.choices}
    assert last is not None
    assert last.choices == []
    assert last.usage is not None
    assert whole.usage is not None
    assert last.usage.completion_tokens == whole.usage.completion_tokens


async def check_prompts(client: Client, model: str) -> None:
    """A list of prompts: `n` choices each, in order; echo repeats each its own."""
    prompts = ["The sea is", "Once upon a time in a harbour"]
    answer = await client.completions.create(
        model=model, prompt=prompts, n=2, max_tokens=3, echo=True, seed=1, temperature=0.7
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    for choice in answer.choices:
        assert choice.text.startswith(prompts[choice.index // 2])
    alone = await client.completions.create(model=model, prompt=prompts[1], max_tokens=1)
    both = await client.completions.create(model=model, prompt=prompts, max_tokens=1)
    assert alone.usage is not None
    assert both.usage is not None
    assert both.usage.prompt_tokens > alone.usage.prompt_tokens
    streamed = await client.completions.create(
        model=model, prompt=prompts, max_tokens=3, echo=True, temperature=0, stream=True
    )
    texts: dict[int, str] = defaultdict(str)
    async for chunk in streamed:
        for piece in chunk.choices:
            texts[piece.index] += piece.text
    whole = await client.completions.create(
        model=model, prompt=prompts, max_tokens=3, echo=True, temperature=0
    )
    assert dict(sorted(texts.items())) == {c.index: c.text for c in whole.choices}


async def check_chat_logprobs(client: Client, model: str) -> None:
    """Tokens' bytes joined are the text, whole or streamed; the best come first."""
    asked: dict[str, Any] = {
        "model": model, "messages": HELLO, "max_tokens": 12, "temperature": 0, "logprobs": True,
        "top_logprobs": 2,
    }  # fmt: skip
    choice = (await client.chat.completions.create(**asked)).choices[0]
    assert choice.logprobs is not None
    content = choice.logprobs.content
    assert content
    assert _text([token.bytes for token in content]) == choice.message.content
    for token in content:
        assert token.logprob <= 0
        values = [top.logprob for top in token.top_logprobs]
        assert values == sorted(values, reverse=True)
        assert math.isclose(values[0], token.logprob, abs_tol=1e-4)
    streamed: list[Any] = []
    async for chunk in await client.chat.completions.create(**asked, stream=True):
        for piece in chunk.choices:
            if piece.logprobs is not None:
                streamed += piece.logprobs.content or []
    assert [(t.token, t.bytes) for t in streamed] == [(t.token, t.bytes) for t in content]
    plain = await client.chat.completions.create(model=model, messages=HELLO, max_tokens=1)
    assert plain.choices[0].logprobs is None


async def check_text_logprobs(client: Client, model: str) -> None:
    """The older shape: parallel lists, each token where its text starts."""
    answer = await client.completions.create(
        model=model, prompt="The sea is", max_tokens=8, temperature=0, logprobs=3
    )
    choice = answer.choices[0]
    assert choice.logprobs is not None
    tokens, offsets = choice.logprobs.tokens, choice.logprobs.text_offset
    assert tokens
    assert offsets is not None
    assert choice.logprobs.token_logprobs is not None
    assert choice.logprobs.top_logprobs is not None
    assert len(tokens) == len(offsets) == len(choice.logprobs.token_logprobs)
    for token, offset, top in zip(tokens, offsets, choice.logprobs.top_logprobs, strict=True):
        assert token in top
        if not token.startswith("bytes:"):
            assert choice.text[offset:].startswith(token)


async def check_errors(client: Client, model: str) -> None:
    """What is not done raises the client's exception, with the parameter's name."""
    refused: list[tuple[dict[str, Any], str]] = [
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logit_bias": {"99999999": 1}}, "logit_bias"),
        ({"store": True}, "store"),
        ({"temperature": 3}, "temperature"),
        ({"service_tier": "flex"}, "service_tier"),
        ({"max_tokens": 10**9}, "max_tokens"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [WEATHER, WEATHER]}, "tools"),
        ({"tools": [_tool("f", {"type": "king"})]}, "tools"),
        ({"tools": [WEATHER], "response_format": {"type": "json_object"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": _format({"type": "king"})}, "response_format"),
        ({"response_format": _format({"not": {}})}, "response_format"),
    ]
    for fields, param in refused:
        asked: dict[str, Any] = {"model": model, "messages": HELLO, **fields}
        with pytest.raises(openai.BadRequestError) as fault:
            await client.chat.completions.create(**asked)
        assert fault.value.param == param, fields
    with pytest.raises(openai.BadRequestError) as echoed:
        await client.completions.create(model=model, prompt="x", echo=True, logprobs=1)
    assert echoed.value.param == "logprobs"
    with pytest.raises(openai.NotFoundError):
        await client.chat.completions.create(model="absent", messages=HELLO)


async def check_fields_without_effect(client: Client, model: str) -> None:
    """What official clients send along is taken; the tier that served is named."""
    answer = await client.chat.completions.create(
        model=model, messages=HELLO, max_tokens=1, user="u", metadata={"app": "mail"},
        service_tier="auto", safety_identifier="s", store=False, parallel_tool_calls=True,
    )  # fmt: skip
    assert answer.service_tier == "default"


async def check_tokens(client: Client, model: str) -> None:
    """What is counted is what is charged; text goes there and back."""
    messages: list[object] = [dict(message) for message in HELLO]
    base = str(client.base_url).rstrip("/").removesuffix("/v1")

    async def ask(path: str, **body: object) -> dict[str, Any]:
        answer: dict[str, Any] = await client.post(
            f"{base}/{path}", body={"model": model, **body}, cast_to=dict[str, Any]
        )
        return answer

    text = "Größe: 😀 lines"
    tokens = (await ask("tokenize", prompt=text))["tokens"]
    assert (await ask("detokenize", tokens=tokens))["prompt"] == text
    counted = await ask("tokenize", messages=messages, return_token_strs=True)
    assert counted["count"] == len(counted["tokens"]) == len(counted["token_strs"])
    assert counted["max_model_len"] > counted["count"]
    charged = await client.chat.completions.create(model=model, messages=HELLO, max_tokens=1)
    assert charged.usage is not None
    assert charged.usage.prompt_tokens == counted["count"]
    for path, param, body in (
        ("tokenize", "prompt", {}),
        ("tokenize", "prompt", {"prompt": "x", "messages": messages}),
        ("tokenize", "add_special_tokens", {"prompt": "x", "add_special_tokens": False}),
        ("tokenize", "add_generation_prompt", {"prompt": "x", "add_generation_prompt": False}),
        ("detokenize", "tokens", {"tokens": [10**7]}),
        ("detokenize", "tokens[0]", {"tokens": [-1]}),
    ):
        with pytest.raises(openai.BadRequestError) as fault:
            await ask(path, **body)
        assert fault.value.param == param


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


def _text(parts: list[list[int] | None]) -> str:
    return b"".join(bytes(part or []) for part in parts).decode("utf-8", "replace")


CHECKS = [
    check_choices,
    check_streamed_choices,
    check_prompts,
    check_chat_logprobs,
    check_text_logprobs,
    check_errors,
    check_fields_without_effect,
    check_tokens,
    check_json_schema,
    check_json_object,
    check_forced_call,
    check_offered_call,
]
