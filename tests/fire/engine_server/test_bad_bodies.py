"""Bodies that are no request: broken, crowded, endless or encoded; a 4xx that costs little."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from unittest import mock

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from fleetward_engine.server import body as body_module
from fleetward_engine.server.body import parse
from fleetward_engine.server.errors import ApiError
from fleetward_engine.server.openai_models import CompletionBody
from tests.support.bad_requests import refused
from tests.support.engine_server import MODEL, RunningEngine, running_engine

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningEngine]:
    async with running_engine(tmp_path_factory.mktemp("bad"), governed=False) as running:
        yield running


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"", 400, "invalid_json"),
        (b"{", 400, "invalid_json"),
        (b"[]", 400, "invalid_json"),
        (b"\xff\xfe{}", 400, "invalid_json"),
        (b'{"model": NaN}', 400, "invalid_json"),
        (b"[" * 5000, 400, "invalid_json"),
        (b"{}", 400, "missing_required_parameter"),
        (b'{"model": "other", "messages": [{"role": "user", "content": "x"}]}', 404,
         "model_not_found"),
        (b" " * (5 * 1024 * 1024), 413, "request_too_large"),
    ],
)  # fmt: skip
async def test_a_bad_body_is_refused(
    engine: RunningEngine, content: bytes, status: int, code: str
) -> None:
    answered, error = await refused(engine, CHAT, content)
    assert (answered, error["code"]) == (status, code)


def crowded(field: str, item: str, times: int) -> bytes:
    """A completion's body with a field that is a list of many equal items."""
    items = ",".join([item] * times)
    return f'{{"model":"{MODEL}","prompt":"x","{field}":[{items}]}}'.encode()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "content",
    [
        crowded("z", "[" * 900 + "]" * 900, 1900),
        crowded("z", "[]", 1_000_000),
        crowded("prompt", "1", 1_900_000),
        crowded("prompt", '""', 1_300_000),
        crowded("stop", '{"type":"text","text":"\\\\"}', 130_000),
    ],
    ids=["nested", "lists", "numbers", "strings", "objects"],
)
async def test_a_body_of_too_many_values_is_refused_before_any_is_built(
    engine: RunningEngine, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("fleetward_engine.server.body.parse_json")
    answered, error = await refused(engine, TEXT, content)
    assert (answered, error["code"]) == (413, "request_too_large")


def test_a_long_prompt_of_brackets_quotes_and_commas_is_text() -> None:
    prompt = '[{",\\"}]' * 300_000
    content = json.dumps({"model": MODEL, "prompt": prompt}).encode()
    assert parse(CompletionBody, content).prompt == prompt


documents = st.recursive(
    st.one_of(st.integers(), st.text(alphabet='[]{},:"\\x', max_size=6)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(alphabet='[{,"\\', max_size=3), inner, max_size=4),
    ),
    max_leaves=12,
)


@given(document=st.dictionaries(st.text(alphabet='[{,"\\', max_size=3), documents, max_size=4))
def test_only_a_document_s_own_values_are_counted(document: dict[str, Any]) -> None:
    content = json.dumps(document).encode()
    containers, strings = census(document)
    assert fits(content, containers=containers, strings=strings)
    assert not fits(content, containers=containers - 1, strings=strings)
    assert strings == 0 or not fits(content, containers=containers, strings=strings - 1)


def census(value: object) -> tuple[int, int]:
    """Objects and lists, and strings, of a document."""
    if isinstance(value, str):
        return 0, 1
    if not isinstance(value, list | dict):
        return 0, 0
    inner = [*value, *value.values()] if isinstance(value, dict) else value
    counts = [census(item) for item in inner]
    return 1 + sum(count[0] for count in counts), sum(count[1] for count in counts)


def fits(content: bytes, *, containers: int, strings: int) -> bool:
    with mock.patch.multiple(
        body_module, MAX_CONTAINERS=containers, MAX_STRINGS=strings, UNCOUNTED=-1
    ):
        try:
            body_module._check_values(content)
        except ApiError:
            return False
    return True


@pytest.mark.asyncio(loop_scope="module")
async def test_a_body_that_does_not_come_is_given_up(
    engine: RunningEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_module, "BODY_S", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", engine.public_port)
    writer.write(f"POST {TEXT} HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{{".encode())
    async with asyncio.timeout(20):
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"request_timeout" in answer
    writer.close()
    await writer.wait_closed()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_chunked_body_is_counted(engine: RunningEngine) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(80):
            yield b" " * 65536
            await asyncio.sleep(0)

    answer = await engine.http.post(engine.url + CHAT, content=endless())
    assert answer.status_code == 413


@pytest.mark.asyncio(loop_scope="module")
async def test_an_encoded_body_is_refused(engine: RunningEngine) -> None:
    headers = {"content-encoding": "gzip"}
    answer = await engine.http.post(engine.url + CHAT, content=b"x", headers=headers)
    assert answer.status_code == 415
