"""The answers, as OpenAI's clients expect them: shapes, streams, ids and errors of every path."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
import pytest_asyncio

from tests.support.engine_server import MODEL, RunningEngine, running_engine

HELLO = [{"role": "user", "content": "hello"}]


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningEngine]:
    async with running_engine(tmp_path_factory.mktemp("shapes"), governed=False) as running:
        yield running


async def stream(engine: RunningEngine, path: str, body: dict[str, Any]) -> list[Any]:
    """The events' data; the last one is the literal ``[DONE]``."""
    whole = {"model": MODEL, "max_tokens": 4, "stream": True, **body}
    async with engine.http.stream("POST", engine.url + path, json=whole) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-request-id"]
        text = (await answer.aread()).decode()
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    return [json.loads(event) for event in events[:-1]]


async def test_a_whole_chat_answer_has_every_field(engine: RunningEngine) -> None:
    answer = await engine.chat({"messages": HELLO})
    body = answer.json()
    assert set(body["choices"][0]) == {"index", "message", "finish_reason", "logprobs"}
    message = body["choices"][0]["message"]
    assert (message["role"], message["refusal"]) == ("assistant", None)
    assert len(message["content"]) == 4
    assert body["choices"][0]["finish_reason"] == "length"
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["completion_tokens"] == 4
    assert usage["prompt_tokens_details"]["cached_tokens"] in (0, 16)


async def test_a_chat_stream_opens_with_the_role_and_ends_with_the_reason_alone(
    engine: RunningEngine,
) -> None:
    chunks = await stream(engine, "/v1/chat/completions", {"messages": HELLO})
    whole = (await engine.chat({"messages": HELLO})).json()
    assert len({(chunk["id"], chunk["created"]) for chunk in chunks}) == 1
    choices = [chunk["choices"][0] for chunk in chunks]
    assert choices[0]["delta"]["role"] == "assistant"
    assert all(choice["finish_reason"] is None for choice in choices[:-1])
    assert (choices[-1]["delta"], choices[-1]["finish_reason"]) == ({}, "length")
    assert all("usage" not in chunk for chunk in chunks)
    text = "".join(choice["delta"].get("content", "") for choice in choices)
    assert text == whole["choices"][0]["message"]["content"]


async def test_include_usage_puts_null_on_every_chunk_and_the_counts_on_the_last(
    engine: RunningEngine,
) -> None:
    options = {"messages": HELLO, "stream_options": {"include_usage": True}}
    chunks = await stream(engine, "/v1/chat/completions", options)
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 4


async def test_a_text_stream_equals_the_whole_answer(engine: RunningEngine) -> None:
    chunks = await stream(engine, "/v1/completions", {"prompt": "once"})
    body = {"model": MODEL, "prompt": "once", "max_tokens": 4}
    whole = (await engine.http.post(engine.url + "/v1/completions", json=body)).json()
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["choices"][0]["text"]
    assert chunks[-1]["choices"][0] == {
        "index": 0, "text": "", "logprobs": None, "finish_reason": "length",
    }  # fmt: skip
    assert whole["object"] == "text_completion"


async def test_a_stop_string_is_not_in_the_text(engine: RunningEngine) -> None:
    text = (await engine.chat({"messages": HELLO, "max_tokens": 40})).json()
    content = text["choices"][0]["message"]["content"]
    stop = content[5:8]
    answer = (await engine.chat({"messages": HELLO, "max_tokens": 40, "stop": stop})).json()
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["choices"][0]["message"]["content"] == content[: content.index(stop)]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "unknown_url"),
        ("GET", "/v1/chat/completions/", 404, "unknown_url"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("POST", "/v1/models", 405, "method_not_allowed"),
    ],
)
async def test_unknown_routes_and_methods_are_error_shaped(
    engine: RunningEngine, method: str, path: str, status: int, code: str
) -> None:
    answer = await engine.http.request(method, engine.url + path)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize(
    ("sent", "kept"), [("abc-1.2_3", True), ("x" * 128, True), ("x" * 129, False), ("a b", False)]
)
async def test_a_well_formed_request_id_is_kept(
    engine: RunningEngine, sent: str, kept: bool
) -> None:
    answer = await engine.http.get(engine.url + "/health", headers={"x-request-id": sent})
    assert (answer.headers["x-request-id"] == sent) is kept
    assert len(answer.headers.get_list("x-request-id")) == 1


async def test_models_lists_name_and_aliases(engine: RunningEngine) -> None:
    models = (await engine.http.get(engine.url + "/v1/models")).json()
    assert [model["id"] for model in models["data"]] == [MODEL, "alias"]


async def test_the_official_client_streams_and_reads_errors(engine: RunningEngine) -> None:
    client = openai.AsyncOpenAI(base_url=engine.url + "/v1", api_key="none", max_retries=0)
    async with client:
        chunks = await client.chat.completions.create(
            model="alias",
            messages=[{"role": "user", "content": "hi"}],
            max_completion_tokens=3,
            stream=True,
            stream_options={"include_usage": True},
        )
        seen = [chunk async for chunk in chunks]
        with pytest.raises(openai.NotFoundError) as missing:
            await client.completions.create(model="other", prompt="x")
    assert seen[-1].usage is not None
    assert seen[-1].usage.completion_tokens == 3
    assert missing.value.code == "model_not_found"
    assert missing.value.param == "model"


async def test_load_and_metrics_tell_what_was_done(tmp_path: Path) -> None:
    async with running_engine(tmp_path, governed=False) as engine:
        await check_load_and_metrics(engine)


async def check_load_and_metrics(engine: RunningEngine) -> None:
    await engine.chat({"messages": HELLO})
    load = (await engine.http.get(engine.url + "/load")).json()
    assert load == {
        "ready": True, "draining": False, "unfinished": 0, "running": 0, "waiting": 0,
        "kv_blocks_used": 0, "kv_blocks_total": 512,
    }  # fmt: skip
    await engine.chat({"messages": HELLO, "best_of": 2})
    page = (await engine.http.get(f"http://127.0.0.1:{engine.metrics_port}/metrics")).text
    for line in (
        'fleetward_engine_request_success_total{finish_reason="length"} 1.0',
        'fleetward_engine_request_refused_total{reason="unsupported_parameter"} 1.0',
        "fleetward_engine_generation_tokens_total 4.0",
        "fleetward_engine_time_to_first_token_seconds_count 1.0",
        "fleetward_engine_inter_token_latency_seconds_count 3.0",
        "fleetward_engine_request_queue_time_seconds_count 1.0",
        "fleetward_engine_e2e_request_latency_seconds_count 1.0",
        "fleetward_engine_num_requests_running 0.0",
    ):
        assert line in page.splitlines()
