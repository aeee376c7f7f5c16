"""The answers of the public API: completion objects, stream chunks and usage, as plain JSON.

One `Answer` per request holds what all its chunks share, so that a token costs one small dict and
one orjson call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import orjson

from fleetward_engine.outputs import RequestOutput

Json = dict[str, object]
Kind = Literal["chat", "text"]

DONE = b"data: [DONE]\n\n"
_OBJECTS: dict[Kind, tuple[str, str]] = {
    "chat": ("chat.completion", "chat.completion.chunk"),
    "text": ("text_completion", "text_completion"),
}
_ID_PREFIXES: dict[Kind, str] = {"chat": "chatcmpl-", "text": "cmpl-"}


def event(data: Json) -> bytes:
    """One server-sent event."""
    return b"data: " + orjson.dumps(data) + b"\n\n"


def error_event(body: bytes) -> bytes:
    """An error inside a stream that has begun: the body of `ApiError`, as an event."""
    return b"data: " + body + b"\n\n"


def usage(last: RequestOutput) -> Json:
    """The counters of a request, from its last output."""
    return {
        "prompt_tokens": last.prompt_tokens,
        "completion_tokens": last.completion_tokens,
        "total_tokens": last.prompt_tokens + last.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": last.cached_tokens},
    }


@dataclass(frozen=True, slots=True)
class Answer:
    """What one answer repeats everywhere. ``created`` in epoch seconds."""

    kind: Kind
    request_id: str
    created: int
    model: str
    include_usage: bool = False

    def whole(self, text: str, last: RequestOutput) -> Json:
        """The answer to a request that did not ask for a stream."""
        choice: Json = {"index": 0, "finish_reason": last.finish_reason, "logprobs": None}
        if self.kind == "chat":
            choice["message"] = {"role": "assistant", "content": text, "refusal": None}
        else:
            choice["text"] = text
        return {**self._head(0), "choices": [choice], "usage": usage(last)}

    def opening(self) -> Json | None:
        """The first chunk: the role, for chat; nothing for text."""
        if self.kind == "text":
            return None
        return self._chunk({"role": "assistant", "content": "", "refusal": None})

    def delta(self, text: str) -> Json:
        """A chunk with text."""
        return self._chunk({"content": text} if self.kind == "chat" else text)

    def closing(self, finish_reason: str) -> Json:
        """The finish chunk: no text, only the reason."""
        return self._chunk({} if self.kind == "chat" else "", finish_reason)

    def usage_chunk(self, last: RequestOutput) -> Json:
        """The chunk after the finish when the client asked for usage."""
        return {**self._head(1), "choices": [], "usage": usage(last)}

    def _chunk(self, content: object, finish_reason: str | None = None) -> Json:
        field = "delta" if self.kind == "chat" else "text"
        choice = {"index": 0, field: content, "logprobs": None, "finish_reason": finish_reason}
        chunk: Json = {**self._head(1), "choices": [choice]}
        if self.include_usage:
            chunk["usage"] = None
        return chunk

    def _head(self, form: Literal[0, 1]) -> Json:
        return {
            "id": _ID_PREFIXES[self.kind] + self.request_id,
            "object": _OBJECTS[self.kind][form],
            "created": self.created,
            "model": self.model,
            "system_fingerprint": None,
        }
