"""A string that must not be found again, and every place of a request that can carry it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

CANARY = "Zq7-canary-9f3c"
MODEL = "demo"
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


@dataclass(frozen=True, slots=True)
class Probe:
    """One request that carries the canary; `body` as it goes over the wire."""

    about: str
    path: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    method: str = "POST"


def text(**fields: Any) -> bytes:
    return json.dumps({"model": MODEL, "prompt": "x", "max_tokens": 2, **fields}).encode()


def chat(*messages: Any, **fields: Any) -> bytes:
    said = list(messages) or [{"role": "user", "content": "x"}]
    return json.dumps({"model": MODEL, "messages": said, "max_tokens": 2, **fields}).encode()


def _messages() -> dict[str, Any]:
    part = {"type": "text", "text": CANARY}
    return {
        "content": {"role": "user", "content": CANARY},
        "parts": {"role": "user", "content": [part, part]},
        "part type": {"role": "user", "content": [{"type": CANARY, "text": CANARY}]},
        "part of a wrong type": {"role": "user", "content": [CANARY, 1]},
        "name": {"role": "user", "content": "x", "name": CANARY},
        "role": {"role": CANARY, "content": "x"},
        "content of a wrong type": {"role": "user", "content": {CANARY: CANARY}},
        "tool call": {"role": "assistant", "tool_calls": [{"function": {"name": CANARY}}]},
        "no message": CANARY,
    }


SHARED: dict[str, Any] = {
    "stop": CANARY, "user": CANARY, "safety_identifier": CANARY, "metadata": {CANARY: CANARY},
    "prompt_cache_key": CANARY, "cache_salt": CANARY, "service_tier": CANARY,
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "x", "strict": True, "schema": {"enum": [CANARY], CANARY: 1}},
    },
    "logit_bias": {CANARY: CANARY}, "model": CANARY, CANARY: {CANARY: CANARY}, "n": CANARY,
    "temperature": CANARY, "max_tokens": CANARY, "seed": CANARY, "stream": CANARY,
    "stream_options": {"include_usage": CANARY}, "stop_token_ids": [CANARY], "priority": CANARY,
}  # fmt: skip
"""Fields of both routes, each holding the canary, most of them as a wrong type or value."""

CHAT_ONLY: dict[str, Any] = {
    "tools": [{"type": "function", "function": {"name": CANARY, "description": CANARY}}],
    "tool_choice": {"function": {"name": CANARY}}, "functions": [{"name": CANARY}],
    "function_call": CANARY, "modalities": [CANARY], "reasoning_effort": CANARY,
    "prediction": {"content": CANARY}, "logprobs": CANARY,
}  # fmt: skip
TEXT_ONLY: dict[str, Any] = {"suffix": CANARY, "prompt": CANARY, "echo": CANARY}


def _fields() -> list[Probe]:
    probes = [Probe(f"message, {name}", CHAT, chat(each)) for name, each in _messages().items()]
    probes += [Probe(f"chat, {name}", CHAT, chat(**{name: each}))
               for name, each in {**SHARED, **CHAT_ONLY}.items()]  # fmt: skip
    probes += [Probe(f"text, {name}", TEXT, text(**{name: each}))
               for name, each in {**SHARED, **TEXT_ONLY}.items()]  # fmt: skip
    answered: dict[str, dict[str, Any]] = {
        "streamed": {"stream": True, "stream_options": {"include_usage": True}},
        "echoed": {"echo": True, "stop": [CANARY, "never"]},
        "echoed in a stream": {"echo": True, "stream": True},
        "echoed token by token": {"echo": True, "logprobs": 2},
        "several": {"prompt": [CANARY * 3, CANARY], "n": 2},
    }
    probes += [
        Probe(f"{path}, {name}", path, json.dumps({"model": MODEL, name: each}).encode())
        for path in ("/tokenize", "/detokenize")
        for name, each in (("prompt", CANARY), ("tokens", [CANARY]), ("messages", [CANARY]))
    ]
    return probes + [
        Probe(name, TEXT, text(**{"prompt": CANARY * 9, **each})) for name, each in answered.items()
    ]


def _broken() -> list[Probe]:
    quoted = json.dumps(CANARY).encode()
    bodies = {
        "cut off": text(prompt=CANARY)[:-9],
        "no JSON": CANARY.encode(),
        "no object": quoted,
        "a list": b"[" + quoted + b"]",
        "twice a key": b'{"model":"demo",' + (quoted + b":1,") * 2 + b'"prompt":"x"}',
        "no UTF-8": b'{"model":"demo","prompt":"' + CANARY.encode() + b'\xff"}',
        "half a surrogate": b'{"model":"\\ud800' + CANARY.encode() + b'","prompt":"x"}',
        "too deep": b'{"model":"demo","x":' + b"[" * 90 + quoted + b"]" * 90 + b"}",
        "too many digits": b'{"model":"demo","' + CANARY.encode() + b'":' + b"9" * 6000 + b"}",
        "NaN": b'{"model":"demo",' + quoted + b":NaN}",
        "too long a prompt": text(prompt=CANARY * 1000),
        "too large": text(prompt=CANARY * 300_000),
        "too many values": text(x=[[CANARY]] * 80_000),
    }
    return [Probe(name, TEXT, body) for name, body in bodies.items()]


def _heads() -> list[Probe]:
    named = ("content-type", "content-encoding", "accept", "accept-language", "user-agent",
             "fleetward-retention-class", "fleetward-document-tags", "fleetward-admin",
             "x-request-id", "traceparent", "cookie", "origin", "openai-organization",
             "x-forwarded-for", CANARY)  # fmt: skip
    probes = [Probe(f"header {name}", TEXT, text(), {name: CANARY}) for name in named]
    probes += [
        Probe("key", TEXT, text(), {"authorization": f"Bearer {CANARY}-and-some-more"}),
        Probe("scheme", TEXT, text(), {"authorization": CANARY}),
        Probe("identity", TEXT, text(), {"fleetward-identity": CANARY}),
        Probe("path", f"/v1/{CANARY}", text()),
        Probe("query", f"{TEXT}?{CANARY}={CANARY}", text()),
        Probe("model path", f"/v1/models/{CANARY}", b"", method="GET"),
        Probe("method", TEXT, b"", method=CANARY.upper().replace("-", "")),
        Probe("method of another route", f"{TEXT}?{CANARY}", b"", method="DELETE"),
    ]
    return probes


def probes() -> list[Probe]:
    """Every request, in one order."""
    return [*_fields(), *_broken(), *_heads()]
