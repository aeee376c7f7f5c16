"""Bodies made at random against a real engine process: it lives, and every answer has a shape."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from pathlib import Path

import httpx
import pytest

from e2e.chaos.scale import is_full, seed
from e2e.figures.record import record
from tests.support.engine_process import EngineProcess, engine_process
from tests.support.surface_bodies import CHAT, random_request
from tests.support.surface_verdict import fault_of

AT_ONCE = 16
SHORT, FULL = 1_000, 10_000


async def test_no_body_ends_the_engine_or_gets_an_answer_without_shape(tmp_path: Path) -> None:
    count = FULL if is_full() else SHORT
    rng = random.Random(seed())  # noqa: S311 - a test's choices
    requests = iter([random_request(rng) for _ in range(count)])
    faults: list[str] = []
    statuses: Counter[int] = Counter()
    async with engine_process(
        tmp_path, step_ms=0.1, max_model_len=512, max_num_seqs=64, max_num_batched_tokens=4096
    ) as engine:
        await engine.ready()

        async def client() -> None:
            for path, content in requests:
                status, fault = await one(engine, path, content)
                statuses[status] += 1
                if fault:
                    faults.append(f"{path} {content[:600]!r} → {status}: {fault}")

        await asyncio.gather(*(client() for _ in range(AT_ONCE)))
        alive = engine.child.returncode is None and await engine.says("/health")
        assert await engine.says("/ready")
        held = await engine.metrics()
    detail = (
        f"of {count} bodies, {statuses[200]} answered, {'alive' if alive else 'dead'} at the end"
    )
    record("surface-fuzz-faults", len(faults) + (not alive), detail)
    assert not faults, "\n".join(faults[:20])
    assert alive
    assert (held["num_requests"], held["leaks"]) == (0, 0)
    # The mix must not be so hostile that nothing is ever answered.
    assert count // 10 < statuses[200] < count


async def one(engine: EngineProcess, path: str, content: bytes) -> tuple[int, str]:
    """Send one body; the status and what is wrong with its answer."""
    headers = {"content-type": "application/json"}
    try:
        answer = await engine.http.post(path, content=content, headers=headers)
    except httpx.TransportError as lost:
        return 0, f"no answer: {lost!r}"
    media = answer.headers.get("content-type", "")
    return answer.status_code, fault_of(path, answer.status_code, media, answer.content)


ERROR = {"error": {"message": "m", "type": "t", "param": None, "code": "c"}}
USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
CHOICE = {
    "index": 0, "finish_reason": "stop", "logprobs": None,
    "message": {"role": "assistant", "content": "x", "refusal": None},
}  # fmt: skip
WHOLE = {
    "id": "i", "object": "chat.completion", "created": 1, "model": "m", "choices": [CHOICE],
    "usage": USAGE,
}  # fmt: skip
CHUNK = {
    "id": "i", "object": "chat.completion.chunk", "created": 1, "model": "m",
    "choices": [{"index": 0, "delta": {}, "finish_reason": None}],
}  # fmt: skip
LAST = {**CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def events(*data: object) -> bytes:
    texts = [one if isinstance(one, str) else json.dumps(one) for one in data]
    return "".join(f"data: {text}\n\n" for text in texts).encode()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, {**WHOLE, "usage": {**USAGE, "total_tokens": 3}}),
        (200, {**WHOLE, "choices": [{**CHOICE, "index": 1}]}),
        (200, {**WHOLE, "choices": [{**CHOICE, "finish_reason": None}]}),
        (200, {**WHOLE, "choices": [{**CHOICE, "message": {"role": "assistant", "content": 5}}]}),
        (200, {"id": "i"}),
        (400, {"error": "no"}),
        (400, {"error": {**ERROR["error"], "param": 5}}),
        (400, {"error": {**ERROR["error"], "message": ""}}),
        (400, {"detail": []}),
        (500, ERROR),
        (503, ERROR),
    ],
)
def test_the_verdict_sees_a_wrong_answer(status: int, body: object) -> None:
    assert fault_of(CHAT, status, "application/json", json.dumps(body).encode())
    assert not fault_of(CHAT, 200, "application/json", json.dumps(WHOLE).encode())
    assert not fault_of(CHAT, 400, "application/json", json.dumps(ERROR).encode())


@pytest.mark.parametrize(
    "content",
    [
        events(CHUNK, LAST),
        events(CHUNK, "[DONE]"),
        events(CHUNK, LAST, CHUNK, "[DONE]"),
        events(CHUNK, {**LAST, "id": "j"}, "[DONE]"),
        events(CHUNK, LAST, "[DONE]")[:-1],
        events(CHUNK, {"error": "no"}),
        events({**CHUNK, "choices": 5}, LAST, "[DONE]"),
    ],
)
def test_the_verdict_sees_a_wrong_stream(content: bytes) -> None:
    assert fault_of(CHAT, 200, "text/event-stream", content)
    assert not fault_of(CHAT, 200, "text/event-stream", events(CHUNK, LAST, "[DONE]"))
    assert not fault_of(CHAT, 200, "text/event-stream", events(CHUNK, ERROR))
