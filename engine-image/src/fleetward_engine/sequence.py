"""A request on its way: its tokens so far, the blocks it holds, how far it is computed."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import replace

from fleetward_api.cache_key import block_key, fold_root
from fleetward_engine.request import Request


class Sequence:
    """The mutable state of one request inside the engine.

    Invariants: `num_computed <= len(token_ids)`; the KV of token i lies in
    `block_table[i // block_size]` for every i below `num_computed`; the first `num_committed`
    blocks were offered to the index.
    """

    __slots__ = (
        "_keys", "block_table", "cached_at_arrival", "cached_tokens", "expected_output",
        "num_committed", "num_computed", "num_public", "num_steps", "order", "owner", "passed_by",
        "queue_seconds", "request", "shared_blocks", "token_ids", "waiting_since",
    )  # fmt: skip

    def __init__(self, request: Request, *, order: int) -> None:
        self.request = request
        self.order = order
        self.owner = request.cache.owner
        self.token_ids: list[int] = list(request.prompt_token_ids)
        self.block_table: list[int] = []
        self.num_computed = 0
        self.num_committed = 0
        self.cached_tokens: int | None = None
        self.waiting_since = request.arrival
        self.queue_seconds = 0.0
        self.passed_by = 0  # tokens that others who passed it may come to, while it did not fit
        # What admission expected when it came: tokens of its answer; of its prompt, those found in
        # the cache; and of their blocks, those that others were using.
        self.expected_output = request.sampling.max_tokens
        self.cached_at_arrival = 0
        self.shared_blocks = 0
        self.num_steps = 0  # in which it was run
        self.num_public = 0  # leading blocks of a public prefix, which it reads and never makes
        self._keys: list[bytes] = []

    @property
    def tenant(self) -> str:
        """Whose request it is."""
        return self.owner.tenant

    def shares_cache_with(self, other: Sequence) -> bool:
        """Whether either may find what the other left in the cache."""
        root = self.request.cache.root
        return root is not None and root == other.request.cache.root

    @property
    def num_prompt_tokens(self) -> int:
        """Length of the prompt."""
        return len(self.request.prompt_token_ids)

    @property
    def output_token_ids(self) -> SequenceOf[int]:
        """Tokens generated so far."""
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def num_output_tokens(self) -> int:
        """How many tokens were generated so far."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def deadline(self) -> float:
        """When it ends even if it is not finished (monotonic seconds; infinity: never)."""
        return self.request.deadline

    @property
    def max_len(self) -> int:
        """Tokens it may come to: the prompt and the longest answer asked for."""
        return self.num_prompt_tokens + self.request.sampling.max_tokens

    @property
    def was_admitted(self) -> bool:
        """Whether it has ever left the queue."""
        return self.cached_tokens is not None

    @property
    def is_decoding(self) -> bool:
        """Whether its next step computes the token that it was given last, and nothing else."""
        return self.num_uncomputed == 1 and self.num_output_tokens > 0

    @property
    def num_uncomputed(self) -> int:
        """Known tokens whose KV is still missing: the whole prompt at first, then 1 per decode."""
        return len(self.token_ids) - self.num_computed

    def block_keys(self, count: int, block_size: int) -> SequenceOf[bytes]:
        """The keys of the first `count` blocks, each chained from the one before.

        The first private one after a public prefix is chained from the root as well.

        Raises:
            ValueError: the request has no cache root, or fewer full blocks are known.
        """
        root = self.request.cache.root
        if root is None:
            raise ValueError("a request without a cache root has no block keys")
        if count * block_size > len(self.token_ids):
            raise ValueError(f"{count} blocks of {block_size} tokens are not known yet")
        while len(self._keys) < count:
            start = len(self._keys) * block_size
            parent = self._keys[-1] if self._keys else root
            if 0 < self.num_public == len(self._keys):
                parent = fold_root(parent, root)
            self._keys.append(block_key(parent, self.token_ids[start : start + block_size]))
        return self._keys[:count]

    def begin_with(self, public_keys: SequenceOf[bytes]) -> None:
        """Let its first blocks be those of a public prefix; before any key was asked for."""
        if self._keys:
            raise RuntimeError("a sequence has keys already: it can't begin otherwise")
        self._keys = list(public_keys)
        self.num_public = len(public_keys)

    def limit_ttls(self, *, idle_ttl_ms: int | None, max_ttl_ms: int | None) -> None:
        """Let what it leaves in the cache from here on live no longer than this."""
        cache = self.request.cache.limited(idle_ttl_ms=idle_ttl_ms, max_ttl_ms=max_ttl_ms)
        self.request = replace(self.request, cache=cache)

    def stop_waiting(self, now: float) -> None:
        """Add the wait that ends now to the time in the queue."""
        self.queue_seconds += max(0.0, now - self.waiting_since)

    def restart(self) -> None:
        """Forget the computed KV after its blocks were released; tokens and keys stay true."""
        self.block_table = []
        self.num_computed = 0
        self.num_committed = 0
