"""What a flood by one tenant takes from another's hit rate, inside its guaranteed share.

The real scheduler and cache on the simulated runner: a steady tenant asks its working set again and
again while another keeps the queue full of prompts that never repeat.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from fleetward_api.owner import Owner
from fleetward_engine.config import EngineConfig
from fleetward_engine.engine import Engine
from fleetward_engine.request import CacheContext, Request, SamplingParams
from fleetward_engine.share_rules import ShareRules
from fleetward_engine.simulated_runner import SimulatedRunner
from fleetward_engine.simulation_profile import SimulationProfile
from fleetward_engine.tokenizer import ByteTokenizer

BLOCK_SIZE, NUM_BLOCKS = 16, 1024
WORKING_SET, PROMPT_TOKENS = 12, 209  # 12 prompts of 14 blocks each: 168 of the 204 guaranteed
ROUNDS = 40
FLOOD_QUEUE = 24
GOVERNED = ShareRules(max_percent=60, guaranteed_percent=20)


@dataclass(slots=True)
class _Clock:
    now: float = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


class Fleet:
    """One engine, the steady tenant and the flooding one."""

    def __init__(self, rules: ShareRules, *, flooded: bool) -> None:
        runner = SimulatedRunner(
            SimulationProfile(), num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, sleep=_no_time
        )
        config = EngineConfig(
            model_uri="package://none",
            served_model_names=("bench",),
            runner="simulated",
            block_size=BLOCK_SIZE,
            max_num_seqs=32,
            max_num_batched_tokens=4096,
        )
        self.engine = Engine(config, runner, ByteTokenizer(), _Clock())
        self.engine.governance.set_share_rules(rules)
        self._flooded = flooded
        self._sent = 0
        self._flooding: set[str] = set()

    def hit_percent(self) -> float:
        """Share of the steady tenant's prompt blocks that were found, after the first round."""
        found = asked = 0
        for round_number in range(ROUNDS + 1):
            for number in range(WORKING_SET):
                cached = self._ask(number)
                if round_number:
                    found += cached
                    asked += (PROMPT_TOKENS - 1) // BLOCK_SIZE * BLOCK_SIZE
        return 100 * found / asked

    def _ask(self, number: int) -> int:
        name = self._add("steady", [number % 200, number // 200], max_tokens=2)
        cached: int | None = None
        while cached is None:
            self._flood()
            for output in self.engine.step():
                if output.finish_reason is not None:
                    self._flooding.discard(output.request_id)
                    cached = output.cached_tokens if output.request_id == name else cached
        return cached

    def _flood(self) -> None:
        while self._flooded and len(self._flooding) < FLOOD_QUEUE:
            digits = [self._sent >> shift & 127 for shift in (0, 7, 14)]
            self._flooding.add(self._add("flood", digits, max_tokens=1))

    def _add(self, tenant: str, head: list[int], *, max_tokens: int) -> str:
        name = f"{tenant} {self._sent}"
        self._sent += 1
        root = hashlib.sha256(tenant.encode()).digest()
        self.engine.add_request(
            Request(
                request_id=name,
                prompt_token_ids=(*head, *([7] * (PROMPT_TOKENS - len(head)))),
                sampling=SamplingParams(max_tokens=max_tokens),
                cache=CacheContext(root=root, owner=Owner.of(tenant)),
                arrival=0.0,
            )
        )
        return name


def _no_time(_seconds: float) -> None:
    return None


def flood_losses() -> tuple[float, float]:
    """Points of hit rate that the steady tenant loses: with its guaranteed share, and without."""
    alone = Fleet(GOVERNED, flooded=False).hit_percent()
    governed = Fleet(GOVERNED, flooded=True).hit_percent()
    without = Fleet(ShareRules(), flooded=True).hit_percent()
    return alone - governed, alone - without
