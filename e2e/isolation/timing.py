"""Whether the time to a first token tells what is cached: across tenants, and in one's own scope.

Everything is as a tenant sees it: HTTP to a serving engine around a real, tiny model, with signed
identities. In each trial tenant A asks a prompt that nobody asked before, and asks again what
begins like it; then B asks, in random order, what begins like A's prompt, and what nobody asked.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import numpy as np
from numpy.typing import NDArray

from tests.support.engine_server import BLOCK, MODEL, RunningEngine
from tests.support.tiny_llama import Shape
from tests.support.tiny_server import tiny_server, write_tiny_model

SHAPE = Shape(layers=4, heads=6, kv_heads=2, head_dim=16, ffn=384)
"""Large enough that a prompt takes several times as long as what is left of it after a hit."""
PREFIX, TAIL = 14 * BLOCK, 8
NUM_BLOCKS = 2048
LETTERS = "abcdefghijklmnopqrstuvwxyz "


@dataclass(slots=True)
class Times:
    """Seconds to the first token, by what a classifier would tell apart, and hits of B's."""

    own_found: list[float] = field(default_factory=list)
    own_new: list[float] = field(default_factory=list)
    cross_cached: list[float] = field(default_factory=list)
    cross_new: list[float] = field(default_factory=list)
    cross_hits: int = 0


def auc(slower: list[float], faster: list[float]) -> float:
    """How well one threshold tells the two apart: 0.5 not at all, 1 always, either way round.

    The area under the ROC curve, as the Mann-Whitney statistic; equal times count half.
    """
    one, other = np.sort(np.asarray(faster)), np.asarray(slower)
    below = np.searchsorted(one, other, side="left").sum()
    equal = np.searchsorted(one, other, side="right").sum() - below
    area = float(below + equal / 2) / (len(one) * len(other))
    return max(area, 1 - area)


async def times_to_first_token(*, trials: int, seed: int) -> Times:
    """Samples of each kind, as many as there are trials."""
    rng, times = random.Random(seed), Times()  # noqa: S311 - a workload, not a secret
    with tempfile.TemporaryDirectory(prefix="fleetward-timing-") as folder:
        path = write_tiny_model(Path(folder), SHAPE)
        async with (
            tiny_server(Path(folder), path=path, num_blocks=NUM_BLOCKS) as (server, _),
            aiohttp.ClientSession() as http,
        ):
            for _ in range(20):  # what the first steps allocate and look up is nobody's data
                await _ask(http, server, "warm-up", _text(rng, PREFIX))
            for _ in range(trials):
                await _trial(http, server, rng, times)
    return times


async def _trial(
    http: aiohttp.ClientSession, server: RunningEngine, rng: random.Random, times: Times
) -> None:
    prefix, nobodys = _text(rng, PREFIX), _text(rng, PREFIX)
    new, _ = await _ask(http, server, "a", prefix + _text(rng, TAIL))
    found, hit = await _ask(http, server, "a", prefix + _text(rng, TAIL))
    if hit < PREFIX:
        raise RuntimeError(f"A found {hit} tokens of its own prefix of {PREFIX}")
    times.own_new.append(new)
    times.own_found.append(found)
    probes = [(prefix, times.cross_cached), (nobodys, times.cross_new)]
    rng.shuffle(probes)
    for text, kept in probes:
        taken, hit = await _ask(http, server, "b", text + _text(rng, TAIL))
        kept.append(taken)
        times.cross_hits += hit > 0


async def _ask(
    http: aiohttp.ClientSession, server: RunningEngine, tenant: str, prompt: str
) -> tuple[float, int]:
    """Seconds to the first token, and how much of the prompt is said to have been cached."""
    body = {
        "model": MODEL, "prompt": prompt, "max_tokens": 1, "temperature": 0, "stream": True,
        "ignore_eos": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    headers = server.identity(tenant)
    began = time.perf_counter()
    async with http.post(server.url + "/v1/completions", json=body, headers=headers) as answer:
        first = await answer.content.readline()
        taken = time.perf_counter() - began
        rest = (first + await answer.content.read()).decode()
    if answer.status != 200:
        raise RuntimeError(f"the engine answered {answer.status}: {rest}")
    events = [line.removeprefix("data: ") for line in rest.splitlines() if line.startswith("data")]
    usage = json.loads(events[-2])["usage"]
    return taken, int(usage["prompt_tokens_details"]["cached_tokens"])


def _text(rng: random.Random, length: int) -> str:
    return "".join(rng.choices(LETTERS, k=length))


def summary(times: Times) -> str:
    """Median milliseconds of each kind."""
    kinds = {
        "own, cached": times.own_found, "own, new": times.own_new,
        "another's": times.cross_cached, "nobody's": times.cross_new,
    }  # fmt: skip
    return ", ".join(f"{name} {_median_ms(kind):.2f} ms" for name, kind in kinds.items())


def _median_ms(seconds: list[float]) -> float:
    values: NDArray[np.float64] = np.asarray(seconds)
    return 1000 * float(np.median(values))
