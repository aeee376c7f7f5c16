"""A response's items and events, as the official client reads them."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
from pydantic import BaseModel

from fleetward_engine.server.choices import Choice, Delta
from fleetward_engine.server.responses import DONE
from fleetward_engine.server.responses_api.body import ResponsesBody
from fleetward_engine.tool_dialect import ToolCall

Json = dict[str, object]


class ResponseShape:
    """One response; implements `Shape`. Counts the events it has made.

    Args:
        body: what was asked, since a response repeats it.
        request_id: what its ids are made of. created: epoch seconds.
    """

    def __init__(self, body: ResponsesBody, *, request_id: str, created: int) -> None:
        self._body = body
        self._request_id = request_id
        self._created = created
        self._sequence = 0
        self._message_open = False

    def whole(self, choices: Sequence[Choice]) -> Json:
        """The response to a request that did not ask for a stream."""
        return self._response(choices[0])

    def opening(self, choices: Sequence[Choice]) -> bytes:  # noqa: ARG002 - nothing of it yet
        """The events before the first token."""
        begun = self._response(None)
        return self._event("response.created", response=begun) + self._event(
            "response.in_progress", response=begun
        )

    def growth(self, choice: Choice, delta: Delta) -> bytes:
        """The events of what an output added."""
        events = b""
        if delta.text:
            if not self._message_open:
                events += self._open_message()
            events += self._text_event("response.output_text.delta", delta=delta.text, logprobs=[])
        if delta.calls:
            events += self._close_message(choice)
            first = 1 if choice.text else 0
            for number, call in enumerate(delta.calls):
                events += self._call_events(call, number, output_index=first + number)
        return events

    def closing(self, choice: Choice) -> bytes:
        """The events that end what is still open."""
        events = b""
        if not choice.text and not choice.calls:
            events += self._open_message()
        return events + self._close_message(choice)

    def ending(self, choices: Sequence[Choice]) -> bytes:
        """The last event, and the mark that ends every stream here."""
        response = self._response(choices[0])
        return self._event(f"response.{response['status']}", response=response) + DONE

    def _response(self, choice: Choice | None) -> Json:
        """The response object; without a choice, as it is before its first token."""
        body = self._body
        cut = choice is not None and choice.finish_reason == "length"
        done = "incomplete" if cut else "completed"
        text = body.text.format if body.text and body.text.format else None
        return {
            "id": f"resp_{self._request_id}",
            "object": "response",
            "created_at": self._created,
            "status": "in_progress" if choice is None else done,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "model": body.model,
            "output": [] if choice is None else self._output(choice),
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": None,
            "service_tier": "default",
            "store": False,
            "temperature": 1.0 if body.temperature is None else body.temperature,
            "text": {"format": _dumped(text) if text else {"type": "text"}},
            "tool_choice": _dumped(body.tool_choice) if body.tool_choice else "auto",
            "tools": [_dumped(tool) for tool in body.tools or ()],
            "top_p": 1.0 if body.top_p is None else body.top_p,
            "truncation": "disabled",
            "usage": None if choice is None else _usage(choice),
        }

    def _output(self, choice: Choice) -> list[Json]:
        items: list[Json] = []
        if choice.text or not choice.calls:
            items.append(self._message([_part(choice.text)], _status(choice)))
        return items + [
            self._call(call, number, "completed") for number, call in enumerate(choice.calls)
        ]

    def _message(self, content: list[Json], status: str) -> Json:
        return {
            "id": f"msg_{self._request_id}",
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        }

    def _call(self, call: ToolCall, number: int, status: str) -> Json:
        return {
            "id": f"fc_{self._request_id}_{number}",
            "type": "function_call",
            "call_id": f"call_{self._request_id}_{number}",
            "name": call.name,
            "arguments": call.arguments if status == "completed" else "",
            "status": status,
        }

    def _open_message(self) -> bytes:
        self._message_open = True
        item = self._message([], "in_progress")
        return self._event("response.output_item.added", output_index=0, item=item) + (
            self._text_event("response.content_part.added", part=_part(""))
        )

    def _close_message(self, choice: Choice) -> bytes:
        if not self._message_open:
            return b""
        self._message_open = False
        item = self._message([_part(choice.text)], _status(choice))
        return (
            self._text_event("response.output_text.done", text=choice.text, logprobs=[])
            + self._text_event("response.content_part.done", part=_part(choice.text))
            + self._event("response.output_item.done", output_index=0, item=item)
        )

    def _call_events(self, call: ToolCall, number: int, *, output_index: int) -> bytes:
        begun, done = self._call(call, number, "in_progress"), self._call(call, number, "completed")
        where = {"item_id": done["id"], "output_index": output_index}
        name = "response.function_call_arguments"
        return (
            self._event("response.output_item.added", output_index=output_index, item=begun)
            + self._event(f"{name}.delta", **where, delta=call.arguments)
            + self._event(f"{name}.done", **where, name=call.name, arguments=call.arguments)
            + self._event("response.output_item.done", output_index=output_index, item=done)
        )

    def _text_event(self, kind: str, **fields: object) -> bytes:
        item_id = f"msg_{self._request_id}"
        return self._event(kind, item_id=item_id, output_index=0, content_index=0, **fields)

    def _event(self, kind: str, **fields: object) -> bytes:
        data = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return f"event: {kind}\ndata: ".encode() + orjson.dumps(data) + b"\n\n"


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _status(choice: Choice) -> str:
    return "incomplete" if choice.finish_reason == "length" else "completed"


def _usage(choice: Choice) -> Json:
    return {
        "input_tokens": choice.prompt_tokens,
        "input_tokens_details": {"cached_tokens": choice.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": choice.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": choice.prompt_tokens + choice.completion_tokens,
    }


def _dumped(value: object) -> object:
    """A part of the body as it was sent."""
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True, exclude_none=True)
    return value
