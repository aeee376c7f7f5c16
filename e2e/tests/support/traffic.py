"""Clients that ask all the time, and what became of each request they sent."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import httpx

from e2e.tests.support.gateway import Gateway

_TIMEOUT_S = 60


@dataclass
class Traffic:
    """Steady clients of some services while the block runs.

    Every answer is counted in `outcomes`: `complete`, `refused` (an OpenAI-shaped error, or one
    in the stream) or `lost` (anything else: cut off, no answer, not our shape). `lost` and
    `refusals` keep what they were, in words. `fields` go into every request; between two of its
    requests a client rests for seconds out of `pauses`, its connection kept.
    """

    gateway: Gateway
    models: Sequence[str]
    clients: int = 4
    seed: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    fields: Mapping[str, object] = field(default_factory=dict)
    pauses: tuple[float, float] = (0.05, 0.3)
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        for number in range(self.clients):
            thread = threading.Thread(target=self._client, args=(number,))
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(_TIMEOUT_S + 10)
        assert not any(thread.is_alive() for thread in self._threads), "a client never ended"

    def _client(self, number: int) -> None:
        dice = random.Random(self.seed * 1000 + number)  # noqa: S311 - choices, not secrets
        with httpx.Client(
            base_url=self.gateway.url, headers=self.gateway.headers, timeout=_TIMEOUT_S
        ) as client:
            while not self._stop.is_set():
                self._one(client, dice.choice(self.models), streamed=dice.random() < 0.5)
                self._stop.wait(dice.uniform(*self.pauses))

    def _one(self, client: httpx.Client, model: str, *, streamed: bool) -> None:
        body: dict[str, object] = {
            "model": model,
            "messages": [{"role": "user", "content": "count, please"}],
            "max_tokens": 24,
            "stream": streamed,
            **self.fields,
        }
        try:
            answer = client.post("/v1/chat/completions", json=body)
            outcome, words = judge(answer, streamed=bool(body["stream"]))
        except httpx.HTTPError as error:
            outcome, words = "lost", f"{type(error).__name__}: {error}"
        with self._lock:
            self.outcomes[outcome] += 1
            if outcome == "lost":
                self.lost.append(f"{model}: {words}")
            elif outcome == "refused":
                self.refusals.append(f"{model}: {words}")


def judge(answer: httpx.Response, *, streamed: bool) -> tuple[str, str]:
    """What an answer that came to its end counts as, and the words of an error."""
    text = answer.text
    if answer.status_code == httpx.codes.OK and streamed:
        return _judge_stream(text)
    try:
        body = json.loads(text)
    except ValueError:
        return "lost", f"{answer.status_code}: {text[:200]}"
    if answer.status_code == httpx.codes.OK:
        complete = bool(body["choices"][0].get("finish_reason"))
        return ("complete", "") if complete else ("lost", text[:200])
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict) and {"message", "type", "code"} <= set(error):
        return "refused", f"{answer.status_code}: {error['message']}"
    return "lost", f"{answer.status_code}: {text[:200]}"


def _judge_stream(text: str) -> tuple[str, str]:
    events = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    if not events:
        return "lost", "an empty stream"
    told = [json.loads(event) for event in events if event != "[DONE]"]
    errors = [each["error"] for each in told if "error" in each]
    if errors:
        return "refused", f"in the stream: {errors[0].get('message')}"
    finished = any(choice.get("finish_reason") for each in told for choice in each["choices"])
    if finished and events[-1] == "[DONE]":
        return "complete", ""
    return "lost", f"a stream that ends with {events[-1][:200]}"
