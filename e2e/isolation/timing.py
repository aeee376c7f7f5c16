"""Whether the time to a first token tells what is cached: across tenants, and in one's own scope.

Everything is as a tenant sees it: HTTP to a serving engine around a real, tiny model, with signed
identities. In each trial tenant A asks two prompts that nobody asked before. Later it asks what
begins like the first, and B asks, in random order, what begins like the second, and what nobody
asked. Later is at once, or, of host memory, when other prompts have pushed both off the device.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import numpy as np
from numpy.typing import NDArray

from fleetward_api.bundle import BundlePush, HostTier, Retention, RetentionClass, Tiers
from tests.support.engine_server import BLOCK, MODEL, UNLIMITED, RunningEngine, push
from tests.support.tiny_llama import Shape
from tests.support.tiny_server import tiny_server, write_tiny_model

SHAPE = Shape(layers=4, heads=6, kv_heads=2, head_dim=16, ffn=384)
"""Large enough that a prompt takes several times as long as what is left of it after a hit."""
PREFIX, TAIL = 14 * BLOCK, 8
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Where what A asked lies when it is asked again; `lag` trials lie between."""

    num_blocks: int
    lag: int = 0
    host_bytes: int = 0
    retention_class: str = ""
    policy: BundlePush = UNLIMITED


TIERS = {
    "device": Tier(num_blocks=2048),
    "host": Tier(
        num_blocks=64,
        lag=2,
        host_bytes=1 << 26,
        retention_class="keep",
        policy=push(
            1,
            retention=Retention(classes={"keep": RetentionClass(store="DeviceAndHost")}),
            tiers=Tiers(host=HostTier(size_bytes=1 << 26)),
        ),
    ),
}


@dataclass(slots=True)
class _Client:
    """Asks one server; `later` holds the prefixes of trials that are still to be asked again."""

    http: aiohttp.ClientSession
    server: RunningEngine
    rng: random.Random
    tier: Tier
    later: deque[tuple[str, str]] = field(default_factory=deque)


async def times_to_first_token(tier: str, *, trials: int, seed: int) -> Times:
    """Samples of each kind, as many as there are trials.

    Raises:
        RuntimeError: A did not find its own, or not in this tier.
    """
    kind, times = TIERS[tier], Times()
    with tempfile.TemporaryDirectory(prefix="fleetward-timing-") as folder:
        path = write_tiny_model(Path(folder), SHAPE)
        async with (
            tiny_server(
                Path(folder), path=path, num_blocks=kind.num_blocks, policy=kind.policy,
                config={"host_kv_cache_memory_bytes": kind.host_bytes},
            ) as (server, _),
            aiohttp.ClientSession() as http,
        ):  # fmt: skip
            rng = random.Random(seed)  # noqa: S311 - a workload, not a secret
            client = _Client(http, server, rng, kind)
            for _ in range(20):  # what the first steps allocate and look up is nobody's data
                await _ask(client, "warm-up", _text(rng, PREFIX))
            for _ in range(trials + kind.lag):
                await _trial(client, times)
            loaded = server.stats.host.counters.loads
    if kind.host_bytes and loaded < trials * PREFIX // BLOCK:
        raise RuntimeError(f"only {loaded} blocks were loaded from host memory")
    return times


async def _trial(client: _Client, times: Times) -> None:
    rng = client.rng
    mine, theirs = _text(rng, PREFIX), _text(rng, PREFIX)
    taken = [await _ask(client, "a", prefix + _text(rng, TAIL)) for prefix in (mine, theirs)]
    client.later.append((mine, theirs))
    if len(client.later) <= client.tier.lag:
        return
    times.own_new.append(taken[0][0])
    mine, theirs = client.later.popleft()
    found, hit = await _ask(client, "a", mine + _text(rng, TAIL))
    if hit < PREFIX:
        raise RuntimeError(f"A found {hit} tokens of its own prefix of {PREFIX}")
    times.own_found.append(found)
    probes = [(theirs, times.cross_cached), (_text(rng, PREFIX), times.cross_new)]
    rng.shuffle(probes)
    for text, kept in probes:
        seconds, hit = await _ask(client, "b", text + _text(rng, TAIL))
        kept.append(seconds)
        times.cross_hits += hit > 0


async def _ask(client: _Client, tenant: str, prompt: str) -> tuple[float, int]:
    """Seconds to the first token, and how much of the prompt is said to have been cached."""
    body = {
        "model": MODEL, "prompt": prompt, "max_tokens": 1, "temperature": 0, "stream": True,
        "ignore_eos": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    headers = client.server.identity(tenant, retention_class=client.tier.retention_class)
    url = client.server.url + "/v1/completions"
    began = time.perf_counter()
    async with client.http.post(url, json=body, headers=headers) as answer:
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
