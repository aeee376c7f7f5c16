"""The cache as user data: fences, deletion and its proof, lifetimes and shares.

Everything here is between two steps. What a request's KV may be reused for is decided where it is
looked up (`KvCache`); what happens to it against its owner's wish to keep it, here.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from typing import Literal

from fleetward_api.scope import Scope
from fleetward_engine.host_tier.rules import HostRules
from fleetward_engine.kv_cache import KvCache
from fleetward_engine.live_requests import LiveRequests
from fleetward_engine.model_runner import ModelRunner
from fleetward_engine.outputs import FenceResult, Overwritten, PurgeCounts
from fleetward_engine.public_tenant import PUBLIC_TENANT
from fleetward_engine.refusal import SHARE_LOWERED, kv_tokens_of
from fleetward_engine.share_rules import ShareRules


class Governance:
    """Rules that reach into an engine's cache, and into the requests that use it."""

    def __init__(
        self,
        kv_cache: KvCache,
        requests: LiveRequests,
        runner: ModelRunner,
        clock: Callable[[], float],
    ) -> None:
        self._kv_cache = kv_cache
        self._requests = requests
        self._runner = runner
        self._clock = clock

    def in_flight(self, scope: Scope, floor: int) -> int:
        """Requests here that are, or may be, of the scope and were authorised below the floor."""
        return len(self._requests.below(scope, floor))

    def fence(self, scope: Scope, floor: int, in_flight: Literal["Finish", "Abort"]) -> FenceResult:
        """From now on, requests of the scope from below the floor use and leave no cache.

        Those in flight finish uncached, or end with finish reason "abort" in the next step.
        """
        self._kv_cache.fence(scope, floor)
        affected = self._requests.below(scope, floor)
        if in_flight == "Finish":
            return FenceResult(finishing=len(affected), aborted=0)
        for generation in affected:
            self._requests.close(generation, "abort")
        self.overwrite_dirty()
        return FenceResult(finishing=0, aborted=len(affected))

    def purge(self, scope: Scope, floor: int, *, scrub: bool) -> PurgeCounts:
        """Remove the scope's entries from below the floor and overwrite its bytes now.

        Fences too. If `blocks_in_use` is not 0, ask again once `in_flight` is: for what was left.
        """
        # What rules of before shared has no time left, and does not say that it is the scope's.
        self._kv_cache.expire(self._clock())
        counts = self._kv_cache.counts(scope)
        purged = self._kv_cache.purge(scope, floor, scrub=scrub)
        self.overwrite_dirty()
        return PurgeCounts(
            index_entries=len(purged.keys),
            overwritten=self._overwritten(len(purged.blocks), purged.host_slots),
            blocks_in_use=purged.blocks_in_use,
            counts=counts,
            removed_keys=purged.keys,
        )

    def overwrite(self, scope: Scope, floor: int, *, limit_bytes: int) -> Overwritten:
        """Overwrite some of the scope's unused blocks from below the floor, at least one.

        After a `purge` without scrub, so that overwriting much memory can be spread over steps.
        Returns what was overwritten now: nothing when no unused block is left in any tier.
        """
        limit = max(1, limit_bytes // self._runner.block_bytes)
        blocks = self._kv_cache.scrub_idle(scope, floor, limit=limit)
        self.overwrite_dirty()
        host_slots = self._kv_cache.host.overwrite(scope, floor, limit=limit - blocks)
        return self._overwritten(blocks, host_slots)

    def probe(self, keys: SequenceOf[bytes]) -> int:
        """How many of these keys the lookup that requests use still finds."""
        return self._kv_cache.probe(keys, self._clock())

    def recount(self, scope: Scope, floor: int) -> int:
        """Index entries of the scope from below the floor, by scanning those of all tiers."""
        return self._kv_cache.recount(scope, floor)

    def residue(self, scope: Scope, floor: int) -> int:
        """Blocks that still carry bytes of the scope from below the floor, in all tiers."""
        return self._kv_cache.pool.count_below(scope, floor) + self.host_residue(scope, floor)

    def host_residue(self, scope: Scope, floor: int) -> int:
        """Those of them that lie in host memory."""
        return self._kv_cache.host.pool.count_below(scope, floor)

    def limit_ttls(self, *, idle_ttl_ms: int | None, max_ttl_ms: int | None) -> None:
        """Shorten the TTLs of what is cached, or will be by requests that are here."""
        for sequence in self._requests.sequences:
            sequence.limit_ttls(idle_ttl_ms=idle_ttl_ms, max_ttl_ms=max_ttl_ms)
        self._kv_cache.limit_ttls(idle_ttl_ms=idle_ttl_ms, max_ttl_ms=max_ttl_ms)

    def forget_divisions(self) -> None:
        """Rules have changed that say which users and permission scopes are told apart.

        What those who are here have made says whose it is by the old ones: until they have left, a
        purge of a user or permission scope of their tenant is about them too.
        """
        self._requests.forget_divisions()

    def set_share_rules(self, rules: ShareRules) -> None:
        """Follow other rules of sharing the pool; what is cached above a limit goes at once.

        Requests that can't fit into the new largest share any more end with an error in the next
        step; the others of a tenant above it are preempted when they need another block.
        """
        if rules == self._kv_cache.pool.accounts.rules:
            return
        self._kv_cache.set_share_rules(rules)
        limit = self._kv_cache.max_request_tokens
        for generation in self._requests:
            fits = kv_tokens_of(generation.sequence.request) <= limit
            if not fits and generation.sequence.tenant != PUBLIC_TENANT:
                self._requests.close(generation, "error", error=SHARE_LOWERED)
        self.overwrite_dirty()

    def set_host_rules(self, rules: HostRules) -> None:
        """Follow other rules of host memory; what they don't let in any more goes at once."""
        self._kv_cache.host.set_rules(rules)

    def expire(self, now: float) -> int:
        """Drop entries past their TTL and overwrite them; each step does so too. For idle times."""
        expired = self._kv_cache.expire(now)
        self.overwrite_dirty()
        return expired

    def overwrite_dirty(self) -> None:
        """Overwrite the blocks that nobody's content may stay in, as `KvCache` marked them."""
        if dirty := self._kv_cache.pool.take_dirty():
            self._runner.zero_blocks(dirty)

    def _overwritten(self, blocks: int, host_slots: int) -> Overwritten:
        return Overwritten(
            blocks=blocks,
            bytes=blocks * self._runner.block_bytes,
            host_blocks=host_slots,
            host_bytes=host_slots * self._kv_cache.host.slot_bytes,
        )
