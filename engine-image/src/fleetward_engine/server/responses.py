"""The answers of the public API: completion objects, stream chunks and usage, as plain JSON.

One `Answer` per call holds what all its chunks share, so that a token costs one small dict and
one orjson call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import orjson

from fleetward_engine.server.choices import Choice, Delta
from fleetward_engine.server.logprobs import TokenEntry, chat_logprobs, text_logprobs
from fleetward_engine.tokenizer import Tokenizer
from fleetward_engine.tool_dialect import ToolCall

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


def usage(choices: Sequence[Choice]) -> Json:
    """The counters of a call: each prompt once, however many choices it has."""
    prompts = [choice for choice in choices if choice.counts_prompt]
    prompt_tokens = sum(choice.prompt_tokens for choice in prompts)
    completion_tokens = sum(choice.completion_tokens for choice in choices)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(each.cached_tokens for each in prompts)},
    }


class Shape(Protocol):
    """How one API writes an answer: whole as JSON, or as the events of a stream."""

    def whole(self, choices: Sequence[Choice]) -> Json:
        """The answer to a request that did not ask for a stream."""

    def opening(self, choices: Sequence[Choice]) -> bytes:
        """What goes out before the first token."""

    def growth(self, choice: Choice, delta: Delta) -> bytes:
        """What an output added to a choice that has taken it."""

    def closing(self, choice: Choice) -> bytes:
        """A choice's end."""

    def ending(self, choices: Sequence[Choice]) -> bytes:
        """The end of the stream, once every choice has ended."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Completions, chat and text: what one answer repeats everywhere. ``created`` in epoch seconds.

    ``logprobs`` whether they were asked for, ``service_tier`` what the client named, if anything.
    """

    kind: Kind
    request_id: str
    created: int
    model: str
    tokenizer: Tokenizer
    include_usage: bool = False
    logprobs: bool = False
    service_tier: str | None = None

    def whole(self, choices: Sequence[Choice]) -> Json:
        """The answer to a request that did not ask for a stream."""
        return {
            **self._head(0),
            "choices": [self._whole_choice(choice) for choice in choices],
            "usage": usage(choices),
        }

    def opening(self, choices: Sequence[Choice]) -> bytes:
        """Each choice's first chunk: for chat the role; for text the echoed prompt, if any."""
        if self.kind == "chat":
            role = {"role": "assistant", "content": "", "refusal": None}
            return b"".join(event(self._chunk(choice, role)) for choice in choices)
        echoing = (choice for choice in choices if choice.echo and not choice.tells_echo_late)
        return b"".join(event(self._chunk(choice, choice.echo)) for choice in echoing)

    def growth(self, choice: Choice, delta: Delta) -> bytes:
        """A chunk with text or calls."""
        content: object = delta.text
        if self.kind == "chat":
            content = {"content": delta.text} if delta.text or not delta.calls else {}
            if delta.calls:
                calls = self._calls(choice, delta.calls)
                numbered = [{"index": number, **call} for number, call in enumerate(calls)]
                content = {**content, "tool_calls": numbered}
        return event(self._chunk(choice, content, delta.entries))

    def closing(self, choice: Choice) -> bytes:
        """A choice's finish chunk: no text, only the reason."""
        content: object = {} if self.kind == "chat" else ""
        return event(self._chunk(choice, content, finish_reason=choice.finish_reason))

    def ending(self, choices: Sequence[Choice]) -> bytes:
        """The usage where the client asked for it, and the mark that ends a stream."""
        if not self.include_usage:
            return DONE
        return event({**self._head(1), "choices": [], "usage": usage(choices)}) + DONE

    def _whole_choice(self, choice: Choice) -> Json:
        whole: Json = {
            "index": choice.index,
            "finish_reason": choice.finish_reason,
            "logprobs": self._logprobs(choice, choice.entries) if self.logprobs else None,
        }
        if self.kind == "chat":
            whole["message"] = self._message(choice)
        else:
            whole["text"] = choice.echo + choice.text
        return whole

    def _message(self, choice: Choice) -> Json:
        message: Json = {"role": "assistant", "content": choice.text, "refusal": None}
        if choice.calls:
            message["content"] = choice.text or None
            message["tool_calls"] = self._calls(choice, choice.calls)
        return message

    def _calls(self, choice: Choice, calls: Sequence[ToolCall]) -> list[Json]:
        return [
            {
                "id": f"call_{self.request_id}_{choice.index}_{number}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for number, call in enumerate(calls)
        ]

    def _chunk(
        self,
        choice: Choice,
        content: object,
        entries: Sequence[TokenEntry] = (),
        *,
        finish_reason: str | None = None,
    ) -> Json:
        chunk: Json = {
            **self._head(1),
            "choices": [
                {
                    "index": choice.index,
                    "delta" if self.kind == "chat" else "text": content,
                    "logprobs": self._logprobs(choice, entries) if entries else None,
                    "finish_reason": finish_reason,
                }
            ],
        }
        if self.include_usage:
            chunk["usage"] = None
        return chunk

    def _logprobs(self, choice: Choice, entries: Sequence[TokenEntry]) -> Json:
        if self.kind == "chat":
            return chat_logprobs(entries, self.tokenizer)
        return text_logprobs(entries, self.tokenizer, start=len(choice.echo))

    def _head(self, form: Literal[0, 1]) -> Json:
        head: Json = {
            "id": _ID_PREFIXES[self.kind] + self.request_id,
            "object": _OBJECTS[self.kind][form],
            "created": self.created,
            "model": self.model,
            "system_fingerprint": None,
        }
        if self.service_tier is not None:
            head["service_tier"] = "default"
        return head
