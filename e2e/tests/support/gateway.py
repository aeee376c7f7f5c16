"""Calls to the gateway on 127.0.0.1, as an application would make them."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

_TRUST = ssl.create_default_context()
"""Made once: every client of its own would read all the world's certificates again."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """The gateway's address and one tenant's key."""

    url: str
    key: str

    def post(
        self,
        body: object,
        *,
        path: str = "/v1/chat/completions",
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        """POST a JSON body as this tenant, with further headers."""
        return httpx.post(
            self.url + path,
            json=body,
            headers={**self.headers, **(headers or {})},
            timeout=120,
            verify=_TRUST,
        )

    @property
    def headers(self) -> dict[str, str]:
        """The Authorization header of this tenant."""
        return {"Authorization": f"Bearer {self.key}"}

    def chat(self, model: str, content: str, **fields: Any) -> dict[str, Any]:
        """One complete chat answer; fails the test on any error."""
        messages = [{"role": "user", "content": content}]
        answer = self.post({"model": model, "messages": messages, "max_tokens": 8, **fields})
        assert answer.status_code == 200, answer.text
        parsed: dict[str, Any] = answer.json()
        return parsed

    def cached_tokens(self, model: str, content: str) -> int:
        """How many prompt tokens an answer says were read from cache."""
        usage = self.chat(model, content)["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    def stream(self, model: str, content: str, **fields: Any) -> Iterator[dict[str, Any]]:
        """The parsed `data:` events of one streamed answer, without the closing `[DONE]`."""
        body = {"model": model, "messages": [{"role": "user", "content": content}], "stream": True}
        with httpx.stream(
            "POST",
            f"{self.url}/v1/chat/completions",
            json={**body, **fields},
            headers=self.headers,
            timeout=120,
        ) as answer:
            assert answer.status_code == 200, answer.read().decode()
            for line in answer.iter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    yield json.loads(line.removeprefix("data: "))
