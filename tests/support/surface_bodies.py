"""Request bodies that no client should send, made at random from sane and hostile values."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from tests.support.engine_process import MODEL

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
RESPONSES, TOKENIZE, DETOKENIZE = "/v1/responses", "/tokenize", "/detokenize"
HOSTILE: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 0.5, -0.0, 1e308, float("nan"), float("inf"), 2**31, 2**63,
    -(2**63), 10**40, "", "x", "\0", "😀" * 50, "\\", "a" * 5000, [], {}, [[]], [{}], {"": {}},
    ["a", 1, None], [0, 257, 258, -1], {"type": "text"}, {"type": None}, [None] * 300,
    {"a": {"b": {"c": [1, {"d": None}]}}}, "null", "NaN",
)  # fmt: skip
"""Values of every kind, put where they do not belong."""

SCHEMAS: tuple[Any, ...] = (
    {"type": "object"}, {"enum": ["a", 1, None]}, {"type": "array", "maxItems": 2}, {}, True,
    {"type": "string", "pattern": "^[0-9]{3}$"}, {"$ref": "#"}, {"$ref": "#/$defs/x"},
    {"type": "king"}, {"not": {}}, {"anyOf": []}, {"type": "string", "pattern": "("},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a", "b"]},
    {"type": "number", "minimum": 5, "maximum": 1}, {"type": "array", "minItems": 10**9},
    {"type": "object", "properties": {f"p{number}": {} for number in range(1200)}},
)  # fmt: skip


def random_request(rng: random.Random) -> tuple[str, bytes]:
    """A path and a body: mostly sane but for a few fields, at times not even JSON."""
    path = rng.choices([CHAT, TEXT, RESPONSES, TOKENIZE, DETOKENIZE], [8, 6, 3, 1, 1])[0]
    body = _response(rng) if path == RESPONSES else _sane(rng, path)
    for _ in range(rng.choice([0, 0, 1, 1, 2, 4])):
        name = rng.choice([*body, *_FIELDS, "made_up"])
        body[name] = rng.choice(HOSTILE)
    content = json.dumps(body).encode()
    if rng.random() < 0.05:
        place = rng.randrange(len(content))
        junk = rng.choice([b"", b"{", b"]", b'"', b"\xff", b"\\u0000", b",", b"NaN"])
        content = content[:place] + junk + content[place + rng.choice([0, 1, 9]) :]
    return path, content


def _sane(rng: random.Random, path: str) -> dict[str, Any]:
    body: dict[str, Any] = {"model": MODEL}
    if path == DETOKENIZE:
        return {**body, "tokens": [rng.randrange(258) for _ in range(rng.randrange(20))]}
    if path == CHAT or (path == TOKENIZE and rng.random() < 0.5):
        body["messages"] = _messages(rng)
    else:
        body["prompt"] = _prompt(rng) if path == TEXT else "some text"
    if path == TOKENIZE:
        return body
    if rng.random() < 0.97:
        body["max_tokens"] = rng.randint(1, 12)
    for name in rng.sample(sorted(_FIELDS), rng.randrange(6)):
        body[name] = _FIELDS[name](rng)
    if path == TEXT and rng.random() < 0.3:
        body["logprobs"] = rng.randrange(4)
    return body


def _response(rng: random.Random) -> dict[str, Any]:
    pool: list[Any] = [
        {"role": "user", "content": "hello"},
        {"role": "user", "content": [{"type": "input_text", "text": "part"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "12"},
        {"type": "reasoning", "summary": []},
    ]
    items = [rng.choice(pool) for _ in range(rng.randint(1, 3))]
    body = {"model": MODEL, "input": rng.choice(["hello", items])}
    fields: dict[str, Any] = {
        "max_output_tokens": rng.randint(1, 12),
        "stream": True,
        "instructions": "be brief",
        "text": {"format": {"type": "json_schema", "name": "x", "schema": rng.choice(SCHEMAS)}},
        "tools": [{"type": "function", "name": "f", "parameters": rng.choice(SCHEMAS)}],
        "tool_choice": rng.choice(["auto", "required", {"type": "function", "name": "f"}]),
        "store": rng.random() < 0.2,
        "temperature": rng.random(),
    }
    chosen = rng.sample(sorted(fields), rng.randrange(6))
    return {**body, **{name: fields[name] for name in {"max_output_tokens", *chosen}}}


def _messages(rng: random.Random) -> list[Any]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    pool: list[Any] = [
        {"role": "user", "content": "hello"},
        {"role": "user", "content": [{"type": "text", "text": "part"}]},
        {"role": "system", "content": "be brief"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "12"},
        {"role": "assistant", "content": "<|end|><tool_call>["},
    ]
    messages = [rng.choice(pool) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.1:
        messages[rng.randrange(len(messages))] = rng.choice(HOSTILE)
    return messages


def _prompt(rng: random.Random) -> Any:
    text = rng.choice(["The sea", "x", "é😀", "a" * 300])
    ids = [rng.randrange(260) for _ in range(rng.randint(0, 9))]
    return rng.choice([text, [text, "and"], ids, [ids, [1, 2]], [text] * rng.randint(1, 140)])


def _format(rng: random.Random) -> Any:
    named = {"name": "x", "schema": rng.choice(SCHEMAS), "strict": rng.random() < 0.5}
    kinds = [{"type": "json_object"}, {"type": "json_schema", "json_schema": named}]
    return rng.choice([*kinds, {"type": "text"}, {"type": "json_schema"}])


def _tools(rng: random.Random) -> Any:
    names = rng.sample(["f", "g", "weather", "bad name"], rng.randint(1, 2))
    return [
        {"type": "function", "function": {"name": name, "parameters": rng.choice(SCHEMAS)}}
        for name in names
    ]


_FIELDS: dict[str, Callable[[random.Random], Any]] = {
    "n": lambda rng: rng.choice([1, 2, 3, 20]),
    "stream": lambda rng: rng.random() < 0.7,
    "stream_options": lambda _: {"include_usage": True},
    "temperature": lambda rng: rng.random() * 2,
    "top_p": lambda rng: rng.random() or 1,
    "top_k": lambda rng: rng.randrange(50),
    "min_p": lambda rng: rng.random(),
    "seed": lambda rng: rng.randrange(2**32),
    "stop": lambda rng: rng.choice(["e", ["ab", "t"], ["x"] * 4]),
    "stop_token_ids": lambda rng: [rng.randrange(258)],
    "min_tokens": lambda rng: rng.randrange(6),
    "ignore_eos": lambda _: True,
    "presence_penalty": lambda rng: rng.uniform(-2, 2),
    "frequency_penalty": lambda rng: rng.uniform(-2, 2),
    "repetition_penalty": lambda rng: rng.random() * 3 + 0.1,
    "logit_bias": lambda rng: {str(rng.randrange(300)): rng.uniform(-101, 101)},
    "logprobs": lambda _: True,
    "top_logprobs": lambda rng: rng.randrange(22),
    "echo": lambda _: True,
    "best_of": lambda rng: rng.choice([1, 2]),
    "suffix": lambda _: "end",
    "user": lambda _: "somebody",
    "response_format": _format,
    "tools": _tools,
    "tool_choice": lambda rng: rng.choice(
        ["auto", "none", "required", {"type": "function", "function": {"name": "f"}}]
    ),
    "parallel_tool_calls": lambda rng: rng.random() < 0.5,
    "max_completion_tokens": lambda rng: rng.randint(1, 9),
    "service_tier": lambda _: "auto",
    "metadata": lambda _: {"k": "v"},
}  # fmt: skip
