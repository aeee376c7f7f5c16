"""A response's events tell the same story as the response, whatever the text and the calls."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from fleetward_engine.outputs import FinishReason, RequestOutput
from fleetward_engine.server.choices import Choice
from fleetward_engine.server.responses_api.body import ResponsesBody
from fleetward_engine.server.responses_api.shape import ResponseShape
from fleetward_engine.tool_dialect import ToolCall, ToolCallReader, written

EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
BODY = ResponsesBody.model_validate(
    {
        "model": "m",
        "input": "x",
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
        "text": {"format": {"type": "text"}},
    }
)


def outputs(pieces: list[str], reason: FinishReason) -> list[RequestOutput]:
    return [
        RequestOutput(
            request_id="r", new_token_ids=(1,), text_delta=piece, cached_tokens=0, prompt_tokens=3,
            completion_tokens=number, finish_reason=reason if number == len(pieces) else None,
        )
        for number, piece in enumerate(pieces, start=1)
    ]  # fmt: skip


def told(pieces: list[str], reason: FinishReason) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The events of a stream, and the answer as a whole."""
    shape = ResponseShape(BODY, request_id="r", created=1)
    choice = Choice(0, counts_prompt=True, reader=ToolCallReader())
    stream = shape.opening([choice])
    for output in outputs(pieces, reason):
        if delta := choice.feed(output):
            stream += shape.growth(choice, delta)
    stream += shape.closing(choice) + shape.ending([choice])
    texts = stream.decode().split("\n\n")
    assert texts[-2:] == ["data: [DONE]", ""]
    events = [json.loads(text.partition("\ndata: ")[2]) for text in texts[:-2]]
    names = [text.partition("\n")[0].removeprefix("event: ") for text in texts[:-2]]
    assert names == [event["type"] for event in events]
    whole = ResponseShape(BODY, request_id="r", created=1).whole([choice])
    return events, json.loads(json.dumps(whole))


@given(
    text=st.text(alphabet="ab€ ", max_size=8),
    calls=st.lists(st.builds(ToolCall, st.just("f"), st.just('{"a":1}')), max_size=3),
    cut=st.booleans(),
    at=st.integers(0, 60),
)
def test_events_and_answer_agree(text: str, calls: list[ToolCall], cut: bool, at: int) -> None:
    everything = text + (written(calls) if calls else "")
    events, whole = told([everything[:at], everything[at:]], "length" if cut else "stop")
    Response.model_validate(whole)
    for event in events:
        EVENT.validate_python(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["response"] == whole
    done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    places = [e["output_index"] for e in events if e["type"] == "response.output_item.done"]
    assert done == whole["output"]
    assert places == list(range(len(done)))
    kinds = [item["type"] for item in done]
    assert kinds == ["message"] * (not calls or bool(text)) + ["function_call"] * len(calls)
    shown = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
    assert shown == text


def test_a_response_that_was_cut_says_so() -> None:
    events, whole = told(["ab"], "length")
    assert whole["status"] == "incomplete"
    assert whole["incomplete_details"] == {"reason": "max_output_tokens"}
    assert whole["output"][0]["status"] == "incomplete"
    assert events[-1]["type"] == "response.incomplete"
    assert told(["ab"], "stop")[1]["status"] == "completed"
