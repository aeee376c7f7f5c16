"""How long an engine takes to purge ten thousand blocks, while another tenant decodes.

A real engine around a tiny model in float64: each purge is ordered over its admin port, and is over
when its signed receipt is here and adds up.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from e2e.isolation.load import decoding
from fleetward_api.receipt import receipt_faults
from fleetward_engine.engine import Engine
from tests.support.engine_server import BLOCK, MODEL, RunningEngine
from tests.support.purge_orders import order, receipt_of
from tests.support.tiny_server import CONTEXT, scope_of, tiny_server

BLOCKS = 10_000
POOL = 12_500
PROMPT = CONTEXT - BLOCK
AT_ONCE = 15
STREAMS = 8
TENANT = "purged"


@dataclass(slots=True)
class Purges:
    """Seconds of each purge, from the order to its receipt; blocks of each; faults of receipts."""

    seconds: list[float] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    block_bytes: int = 0

    @property
    def p99(self) -> float:
        """The 99th percentile, no lower than any sample below it: of fewer than 100, the worst."""
        return float(np.percentile(self.seconds, 99, method="higher"))


async def purges(*, count: int, seed: int) -> Purges:
    """Fill the tenant's cache and purge it, so many times over."""
    rng, result = random.Random(seed), Purges()  # noqa: S311 - a workload, not a secret
    with tempfile.TemporaryDirectory(prefix="fleetward-purges-") as folder:
        async with tiny_server(Path(folder), num_blocks=POOL) as (server, engine):
            result.block_bytes = engine.block_bytes
            async with decoding(server, streams=STREAMS):
                for number in range(count):
                    await _fill(server, engine, rng, floor=number)
                    await _purge(server, result, floor=number + 1)
    return result


async def _purge(server: RunningEngine, result: Purges, *, floor: int) -> None:
    began = time.perf_counter()
    answer = await server.admin("POST", "/purge", order(TENANT, floor, uid=f"purge-{floor}"))
    result.seconds.append(time.perf_counter() - began)
    receipt = receipt_of(server, answer)
    result.faults += receipt_faults(receipt)
    tiers = {tier.tier: tier for tier in receipt.tiers}
    if tiers["device"].method != "overwritten":
        result.faults.append(f"blocks of purge {floor} were {tiers['device'].method}")
    # Removed at once; a few are overwritten for who takes them meanwhile, before the purge comes.
    result.blocks.append(tiers["index"].blocks)


async def _fill(server: RunningEngine, engine: Engine, rng: random.Random, *, floor: int) -> None:
    """Ask different prompts until the tenant has so many blocks."""

    async def ask() -> None:
        prompt = "".join(rng.choices("0123456789abcdef", k=PROMPT))
        body = {"model": MODEL, "prompt": prompt, "max_tokens": 1}
        headers = server.identity(TENANT, floor=floor)
        answer = await server.http.post(server.url + "/v1/completions", json=body, headers=headers)
        answer.raise_for_status()

    missing = BLOCKS
    while missing > 0:
        prompts = -(-missing // (PROMPT // BLOCK))
        for first in range(0, prompts, AT_ONCE):
            await asyncio.gather(*(ask() for _ in range(min(AT_ONCE, prompts - first))))
        # Those that are findable: the others go when the step that follows ends their requests.
        held = await server.assembly.service.loop.call(
            lambda one: one.stats().scope_counts[scope_of(TENANT)].resident
        )
        missing = BLOCKS - held
