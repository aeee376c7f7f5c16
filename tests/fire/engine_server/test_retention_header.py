"""Each answer says what is kept of its request, whole or streamed, on every route."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from fleetward_api.bundle import Retention, RetentionClass
from tests.support.engine_server import MODEL, RunningEngine, push, running_engine

HEADER = "Fleetward-Retention"
POLICY = push(
    1,
    retention=Retention(
        idle_ttl_ms=600_000,
        max_ttl_ms=3_600_000,
        classes={
            "short": RetentionClass(idle_ttl_ms=1_000),
            "none": RetentionClass(store="None"),
        },
    ),
)
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2},
    "/v1/completions": {"prompt": "hello", "max_tokens": 2},
    "/v1/responses": {"input": "hello", "max_output_tokens": 2, "store": False},
}
OWN = "store=device, idle-ttl-ms=600000, max-ttl-ms=3600000"


@pytest_asyncio.fixture
async def engine(tmp_path: Path) -> AsyncIterator[RunningEngine]:
    async with running_engine(tmp_path, policy=POLICY) as running:
        yield running


async def told(engine: RunningEngine, path: str, body: dict[str, Any], **claims: Any) -> str:
    whole = {"model": MODEL, **BODIES[path], **body}
    headers = engine.identity(**claims)
    answer = await engine.http.post(engine.url + path, json=whole, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.headers[HEADER]


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_every_answer_tells(engine: RunningEngine, path: str, stream: bool) -> None:
    body = {"stream": stream}
    assert await told(engine, path, body) == OWN
    short = 'store=device, class="short", idle-ttl-ms=1000, max-ttl-ms=3600000'
    assert await told(engine, path, body, retention_class="short") == short
    none = 'store=none;why=not-stored, class="none"'
    assert await told(engine, path, body, retention_class="none") == none


@pytest.mark.parametrize("path", BODIES)
async def test_what_a_client_asks_for_is_bounded_and_said(engine: RunningEngine, path: str) -> None:
    little = {"prompt_cache_options": {"ttl": "1m"}}
    assert await told(engine, path, little) == f"{OWN}, asked-ttl-ms=60000"
    much = {"prompt_cache_retention": "24h"}
    assert await told(engine, path, much) == f"{OWN}, asked-ttl-ms=86400000, bounded"


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    ("field", "param"),
    [
        ({"prompt_cache_options": {"ttl": "soon"}}, "prompt_cache_options.ttl"),
        ({"prompt_cache_options": {"ttl": 30}}, "prompt_cache_options.ttl"),
        ({"prompt_cache_retention": "forever"}, "prompt_cache_retention"),
    ],
)
async def test_what_is_no_time_is_a_400_that_names_it(
    engine: RunningEngine, path: str, field: dict[str, Any], param: str
) -> None:
    body = {"model": MODEL, **BODIES[path], **field}
    answer = await engine.http.post(engine.url + path, json=body, headers=engine.identity())
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_a_request_from_before_a_purge_keeps_nothing(tmp_path: Path) -> None:
    fenced = push(1, floors={"version": 1, "tenants": {"a": 3}})
    async with running_engine(tmp_path, policy=fenced) as engine:
        assert await told(engine, "/v1/completions", {}, floor=2) == "store=none;why=purged"
        assert await told(engine, "/v1/completions", {}, floor=3) == "store=device"


async def test_an_engine_that_caches_nothing_says_so(tmp_path: Path) -> None:
    async with running_engine(tmp_path, policy=POLICY, enable_prefix_caching=False) as engine:
        assert await told(engine, "/v1/completions", {}) == "store=none"
