"""What the official client must find at any base URL that serves a model: engine or gateway.

Each check takes a client and a model's name and holds whatever the model says.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

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


async def check_echoed_logprobs(client: Client, model: str) -> None:
    """An echoed prompt is told token by token, its first as null, also when it is cached."""
    prompts = ["The sea is blue and", "Once upon a time"]
    asked: dict[str, Any] = {
        "model": model, "prompt": prompts, "max_tokens": 3, "temperature": 0, "echo": True,
        "logprobs": 2, "n": 2,
    }  # fmt: skip
    await client.completions.create(model=model, prompt=prompts, max_tokens=1)
    answer = await client.completions.create(**asked)
    assert len(answer.choices) == 4
    for choice in answer.choices:
        assert choice.logprobs is not None
        told = choice.logprobs
        assert told.tokens
        assert told.text_offset is not None
        assert told.token_logprobs is not None
        assert told.top_logprobs is not None
        assert told.token_logprobs[0] is None
        assert told.top_logprobs[0] is None
        assert all(value is not None and value <= 0 for value in told.token_logprobs[1:])
        pairs = zip(told.tokens[1:], told.top_logprobs[1:], strict=True)
        assert all(token in top for token, top in pairs)
        assert told.text_offset == sorted(told.text_offset)
        assert told.text_offset[0] == 0
        prompt = prompts[choice.index // 2]
        assert sum(1 for offset in told.text_offset if offset < len(prompt)) > 1
        if all(token and not token.startswith("bytes:") for token in told.tokens):
            assert "".join(told.tokens) == choice.text
    streamed: dict[int, list[Any]] = defaultdict(list)
    texts: dict[int, str] = defaultdict(str)
    async for chunk in await client.completions.create(**asked, stream=True):
        for piece in chunk.choices:
            texts[piece.index] += piece.text
            if piece.logprobs is not None:
                streamed[piece.index] += zip(
                    piece.logprobs.tokens or [], piece.logprobs.text_offset or [], strict=True
                )
    assert texts == {choice.index: choice.text for choice in answer.choices}
    for choice in answer.choices:
        assert choice.logprobs is not None
        whole = zip(choice.logprobs.tokens or [], choice.logprobs.text_offset or [], strict=True)
        assert streamed[choice.index] == list(whole)


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
    ]
    for fields, param in refused:
        asked: dict[str, Any] = {"model": model, "messages": HELLO, **fields}
        with pytest.raises(openai.BadRequestError) as fault:
            await client.chat.completions.create(**asked)
        assert fault.value.param == param, fields
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


def _text(parts: list[list[int] | None]) -> str:
    return b"".join(bytes(part or []) for part in parts).decode("utf-8", "replace")


CHECKS = [
    check_choices,
    check_streamed_choices,
    check_prompts,
    check_chat_logprobs,
    check_text_logprobs,
    check_echoed_logprobs,
    check_errors,
    check_fields_without_effect,
    check_tokens,
]
