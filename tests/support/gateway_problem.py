"""An error that the gateway answers, checked for its shape."""

from __future__ import annotations

from typing import Any

ERROR_KEYS = {"message", "type", "param", "code"}


async def problem(response: Any) -> dict[str, Any]:
    """The error of a response, checked to have OpenAI's shape and a request id."""
    body = await response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == ERROR_KEYS
    assert response.headers["x-request-id"]
    assert response.status != 409
    return dict(body["error"])
