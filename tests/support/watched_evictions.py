"""Watches a KV cache evict, and judges each choice by the rules of sharing the pool."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetward_engine.block_pool import Eviction
from fleetward_engine.kv_cache import KvCache


@dataclass(frozen=True, slots=True)
class Choice:
    """An eviction for a tenant: whose block it was, and what that tenant held and was promised."""

    tenant: str
    owner: str
    reason: str
    held: int
    guaranteed: int
    free: int

    @property
    def is_right(self) -> bool:
        """Own blocks at the own limit; in a full pool own ones, or others' beyond their share."""
        if self.owner == self.tenant:
            return self.reason == "quota" or self.free == 0
        return self.reason == "pool" and self.free == 0 and self.held > self.guaranteed


@dataclass
class WatchedEvictions:
    """Every choice that the cache's pool makes from here on."""

    cache: KvCache
    choices: list[Choice] = field(default_factory=list)

    def __post_init__(self) -> None:
        pool = self.cache.pool
        choose = pool.next_eviction

        def watched(tenant: str) -> Eviction | None:
            eviction = choose(tenant)
            if eviction is not None:
                owner = pool.owner(eviction.block)
                assert owner is not None
                account = pool.accounts.of(owner.scope.tenant)
                self.choices.append(
                    Choice(
                        tenant=tenant,
                        owner=account.tenant,
                        reason=eviction.reason,
                        held=account.held,
                        guaranteed=pool.accounts.guaranteed_blocks,
                        free=pool.num_available - sum(each.cached for each in pool.accounts),
                    )
                )
            return eviction

        pool.next_eviction = watched  # type: ignore[method-assign]

    def check(self) -> None:
        """Every choice since the last check was right."""
        wrong = [choice for choice in self.choices if not choice.is_right]
        self.choices.clear()
        assert not wrong, wrong
