"""A chat request to the gateway, streamed: the OpenAI wire format, seen from a client."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from fleetward_cli.errors import CliError

CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the gateway answers, and as whom we ask."""

    url: str
    key: str


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What is asked. ``temperature`` None leaves the server's default."""

    model: str
    messages: Sequence[Mapping[str, str]]
    max_tokens: int
    temperature: float | None = None

    def body(self) -> dict[str, Any]:
        """The request's JSON."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": list(self.messages),
            "max_tokens": self.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.temperature is not None:
            body["temperature"] = self.temperature
        return body


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """The whole answer, after its last token. Times are seconds from the request's start."""

    text: str
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    request_id: str
    first_token_seconds: float
    total_seconds: float


def stream_chat(
    endpoint: Endpoint,
    request: ChatRequest,
    *,
    on_text: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> ChatAnswer:
    """Ask, hand out text as it comes, return the whole.

    Raises:
        CliError: the gateway cannot be reached, refuses, or breaks the answer off; in its words.
    """
    limits = httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
    headers = {"Authorization": f"Bearer {endpoint.key}"}
    url = f"{endpoint.url.rstrip('/')}/v1/chat/completions"
    begin = clock()
    reader = AnswerReader(on_text=on_text, clock=clock, begin=begin)
    try:
        with (
            # The gateway is asked directly: a proxy of the environment is for other hosts.
            httpx.Client(timeout=limits, trust_env=False) as client,
            client.stream("POST", url, headers=headers, json=request.body()) as response,
        ):
            request_id = response.headers.get("x-request-id", "")
            if response.status_code != httpx.codes.OK:
                response.read()
                raise CliError(refusal(response.status_code, response.text))
            for event in read_events(response.iter_lines()):
                reader.take(event)
    except httpx.InvalidURL as error:
        raise CliError(f"--url {endpoint.url} is not a URL: {error}") from error
    except httpx.HTTPError as error:
        raise CliError(
            f"the gateway at {endpoint.url} does not answer "
            f"({str(error) or type(error).__name__}): "
            "check --url (or FLEETWARD_URL) and that the release runs"
        ) from error
    return reader.finish(request_id=request_id)


class AnswerReader:
    """Puts the stream's chunks together."""

    def __init__(
        self, *, on_text: Callable[[str], None], clock: Callable[[], float], begin: float
    ) -> None:
        self._on_text = on_text
        self._clock = clock
        self._begin = begin
        self._text: list[str] = []
        self._first: float | None = None
        self._finish = ""
        self._usage: dict[str, Any] = {}

    def take(self, chunk: dict[str, Any]) -> None:
        """One chunk.

        Raises:
            CliError: it carries an error instead of an answer.
        """
        if "error" in chunk:
            raise CliError(f"the answer broke off: {error_words(chunk)}")
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices") or ():
            self._finish = choice.get("finish_reason") or self._finish
            piece = (choice.get("delta") or {}).get("content") or ""
            if piece:
                self._first = self._clock() if self._first is None else self._first
                self._text.append(piece)
                self._on_text(piece)

    def finish(self, *, request_id: str) -> ChatAnswer:
        """The whole answer.

        Raises:
            CliError: the stream ended without saying why the answer ends.
        """
        if not self._finish:
            raise CliError("the answer broke off: the stream ended without a finish reason")
        end = self._clock()
        details = self._usage.get("prompt_tokens_details") or {}
        return ChatAnswer(
            text="".join(self._text),
            finish_reason=self._finish,
            prompt_tokens=int(self._usage.get("prompt_tokens", 0)),
            cached_tokens=int(details.get("cached_tokens") or 0),
            completion_tokens=int(self._usage.get("completion_tokens", 0)),
            request_id=request_id,
            first_token_seconds=(end if self._first is None else self._first) - self._begin,
            total_seconds=end - self._begin,
        )


def read_events(lines: Iterable[str]) -> Iterable[dict[str, Any]]:
    """The JSON of each `data:` line of a server-sent event stream, up to `[DONE]`."""
    for line in lines:
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        try:
            event = json.loads(data)
        except ValueError as error:
            raise CliError(f"the gateway sent a line that is not JSON: {data[:200]}") from error
        if isinstance(event, dict):
            yield event


def refusal(status: int, body: str) -> str:
    """A refused request in one sentence, with what to do where we know it."""
    try:
        words = error_words(json.loads(body))
    except ValueError:
        words = body.strip()[:300] or "no reason given"
    hint = {
        401: " (check --key or FLEETWARD_KEY)",
        404: " (check --model or FLEETWARD_MODEL; `fleetward status` lists the services)",
    }.get(status, "")
    return f"the gateway refused with status {status}: {words}{hint}"


def error_words(body: Any) -> str:
    """The message and code of an OpenAI-shaped error."""
    detail = body.get("error") if isinstance(body, dict) else None
    if not isinstance(detail, dict):
        return str(body)[:300]
    code = f" [{detail['code']}]" if detail.get("code") else ""
    return f"{detail.get('message', 'no reason given')}{code}"
