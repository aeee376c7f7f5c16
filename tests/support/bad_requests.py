"""A request that an engine has to refuse, and the shape of every refusal."""

from __future__ import annotations

from typing import Any

from tests.support.engine_server import RunningEngine


async def refused(engine: RunningEngine, path: str, content: bytes) -> tuple[int, dict[str, Any]]:
    """Send a body; the status and the error of the answer, which is whole and has an id."""
    answer = await engine.http.post(engine.url + path, content=content)
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert answer.headers["x-request-id"]
    return answer.status_code, error
