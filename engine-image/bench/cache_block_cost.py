"""What governing one block costs, by the size of the pool.

A full pool of eight tenants' prefixes serves one request after another: each looks its prompt up,
evicts as many blocks as it takes, computes nothing, makes them findable and lets them go.
"""

from __future__ import annotations

import hashlib
import random
import statistics
import time

from fleetward_api.owner import Owner
from fleetward_engine.kv_cache import KvCache
from fleetward_engine.request import CacheContext, Request, SamplingParams
from fleetward_engine.sequence import Sequence
from fleetward_engine.share_rules import ShareRules

SIZES = (1_000, 10_000, 100_000, 1_000_000)
BLOCK_SIZE = 16
BLOCKS_PER_REQUEST = 32
BATCHES, REQUESTS_PER_BATCH = 15, 40
RULES = ShareRules(max_percent=60, guaranteed_percent=5, protected_percent=20)
CONTEXTS = tuple(
    CacheContext(
        root=hashlib.sha256(name).digest(), owner=Owner.of(name.decode()), idle_ttl_ms=10**7
    )
    for name in (b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h")
)


class Load:
    """Requests with prompts of their own, one tenant after the other, through one cache."""

    def __init__(self, num_blocks: int) -> None:
        self.cache = KvCache(
            num_blocks=num_blocks, block_size=BLOCK_SIZE, enable_prefix_caching=True
        )
        self.cache.set_share_rules(RULES)
        # Two of 2^31 starting tokens that are the same would only be a hit.
        self._rng = random.Random(num_blocks)  # noqa: S311 - a workload, not a secret
        self._served = 0

    def prepare(self, count: int) -> list[Sequence]:
        """Sequences whose block keys are known already: hashing is not what is measured."""
        return [self._sequence() for _ in range(count)]

    def serve(self, sequences: list[Sequence]) -> None:
        """Admit, make findable and release each."""
        for sequence in sequences:
            now = float(self._served)
            self._served += 1
            self.cache.expire(now)
            if not self.cache.admit(sequence, now):
                raise RuntimeError("an empty pool has room for any of these requests")
            sequence.num_computed = len(sequence.token_ids)
            self.cache.commit(sequence, now)
            self.cache.release(sequence)
            self.cache.pool.take_dirty()

    def _sequence(self) -> Sequence:
        number = self._rng.getrandbits(31)
        tokens = BLOCKS_PER_REQUEST * BLOCK_SIZE
        request = Request(
            request_id=str(number),
            prompt_token_ids=tuple(range(number, number + tokens)),
            sampling=SamplingParams(max_tokens=1),
            cache=CONTEXTS[number % len(CONTEXTS)],
            arrival=0.0,
        )
        sequence = Sequence(request, order=number)
        sequence.block_keys(BLOCKS_PER_REQUEST, BLOCK_SIZE)
        return sequence


def nanoseconds_per_block(num_blocks: int) -> float:
    """Median over batches of this thread's own time, per block taken and let go."""
    load = Load(num_blocks)
    for _ in range(-(-num_blocks // (BLOCKS_PER_REQUEST * REQUESTS_PER_BATCH))):
        load.serve(load.prepare(REQUESTS_PER_BATCH))
    taken = []
    for _ in range(BATCHES):
        sequences = load.prepare(REQUESTS_PER_BATCH)
        began = time.thread_time_ns()
        load.serve(sequences)
        taken.append(time.thread_time_ns() - began)
    return statistics.median(taken) / (REQUESTS_PER_BATCH * BLOCKS_PER_REQUEST)


def cost_by_size() -> dict[int, float]:
    """Nanoseconds per block for each pool size."""
    return {size: nanoseconds_per_block(size) for size in SIZES}
