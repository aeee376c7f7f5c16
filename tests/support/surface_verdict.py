"""Whether an answer is one that OpenAI's clients can read, whatever was asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter, ValidationError

from tests.support.surface_bodies import CHAT, DETOKENIZE, RESPONSES, TOKENIZE

REFUSALS = frozenset({400, 404, 413, 415})
"""What a client's own mistakes may be answered with."""

_EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)


def fault_of(path: str, status: int, media: str, content: bytes) -> str:
    """What is wrong with an answer, "" when nothing is."""
    try:
        if status != 200:
            return _refusal_fault(status, json.loads(content))
        if media.startswith("text/event-stream"):
            return _stream_fault(path, content)
        return _whole_fault(path, json.loads(content))
    except (ValidationError, ValueError, KeyError, TypeError) as fault:
        return f"{type(fault).__name__}: {str(fault)[:300]}"


def _refusal_fault(status: int, body: dict[str, Any]) -> str:
    return _error_fault(body) or ("" if status in REFUSALS else f"status {status}: {body}")


def _error_fault(body: dict[str, Any]) -> str:
    error = body["error"]
    if set(error) != {"message", "type", "param", "code"}:
        return f"an error of keys {sorted(error)}"
    words = (error["message"], error["type"], error["code"])
    if not all(isinstance(word, str) and word for word in words):
        return f"an error without words: {error}"
    if not isinstance(error["param"], str | None):
        return f"a param that is no name: {error}"
    return ""


def _whole_fault(path: str, body: dict[str, Any]) -> str:
    if path in {TOKENIZE, DETOKENIZE}:
        keys = {"count", "max_model_len", "tokens"} if path == TOKENIZE else {"prompt"}
        return "" if keys <= set(body) else f"keys {sorted(body)}"
    if path == RESPONSES:
        Response.model_validate(body)
        return "" if body["status"] in {"completed", "incomplete"} else f"status {body['status']}"
    choices = body["choices"]
    kind: type[BaseModel] = ChatCompletion if path == CHAT else Completion
    kind.model_validate({**body, "choices": [_without_first_null(one) for one in choices]})
    if [choice["index"] for choice in choices] != list(range(len(choices))):
        return "choices out of order"
    if any(choice["finish_reason"] is None for choice in choices):
        return "a choice without an end"
    return _usage_fault(body["usage"])


def _without_first_null(choice: dict[str, Any]) -> dict[str, Any]:
    """The older shape's type lacks that nothing is told of the first token of an echoed prompt."""
    told = choice.get("logprobs")
    if not told or not told.get("tokens") or told["token_logprobs"][0] is not None:
        return choice
    return {**choice, "logprobs": {name: values[1:] for name, values in told.items()}}


def _usage_fault(usage: dict[str, Any]) -> str:
    whole = usage["prompt_tokens"] + usage["completion_tokens"] == usage["total_tokens"]
    return "" if whole and usage["prompt_tokens"] > 0 else f"usage {usage}"


def _stream_fault(path: str, content: bytes) -> str:
    events = content.split(b"\n\n")
    if events.pop():
        return "a stream that ends within an event"
    data = [event.partition(b"data: ")[2] for event in events]
    if data[-1] != b"[DONE]":
        return _error_fault(json.loads(data[-1]))
    chunks = [json.loads(one) for one in data[:-1]]
    if path == RESPONSES:
        return _numbered_fault(chunks)
    kind: type[BaseModel] = ChatCompletionChunk if path == CHAT else Completion
    for chunk in chunks:
        # The older shape's type lacks that `finish_reason` is null until the end.
        shown = [
            _without_first_null(c)
            for c in chunk["choices"]
            if path == CHAT or c["finish_reason"] is not None
        ]
        kind.model_validate({**chunk, "choices": shown})
    return _order_fault(chunks)


def _numbered_fault(events: Sequence[dict[str, Any]]) -> str:
    for event in events:
        _EVENT.validate_python(event)
    if [event["sequence_number"] for event in events] != list(range(len(events))):
        return "events out of order"
    last = events[-1]["type"]
    return "" if last in {"response.completed", "response.incomplete"} else f"ends with {last}"


def _order_fault(chunks: Sequence[dict[str, Any]]) -> str:
    if len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) != 1:
        return "chunks of several answers"
    seen: set[int] = set()
    ended: set[int] = set()
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["index"] in ended:
                return "a chunk after its choice's end"
            seen.add(choice["index"])
            if choice["finish_reason"] is not None:
                ended.add(choice["index"])
        if not chunk["choices"] and _usage_fault(chunk["usage"]):
            return _usage_fault(chunk["usage"])
    return "" if seen == ended == set(range(len(seen))) and seen else f"{seen} began, {ended} ended"
