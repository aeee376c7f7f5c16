"""The engine's state machine with host memory behind its pool, whose rules change at any time."""

from __future__ import annotations

from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from fleetward_engine.host_tier.rules import HostRules
from fleetward_engine.host_tier.tier import HostTier
from tests.support.engine_machine import MARKS, SCOPES, EngineMachine

RULES = st.builds(
    HostRules,
    size=st.sampled_from([0, 100, 240, 1 << 20]),
    classes=st.sampled_from([frozenset({""}), frozenset({"", "short"}), frozenset({"short"})]),
    encrypt=st.booleans(),
)
OPEN = HostRules(size=1 << 20, classes=frozenset({"", "short"}), encrypt=False)


class TieredMachine(EngineMachine):
    """Fewer slots than the prompts need, so that both tiers evict all the time."""

    HOST_BYTES: ClassVar[int] = 400
    damaged = False

    @property
    def host(self) -> HostTier:
        return self.bench.engine._kv_cache.host

    @initialize(rules=RULES | st.just(OPEN))
    def start_host(self, rules: HostRules) -> None:
        self.bench.engine.governance.set_host_rules(rules)

    @rule(rules=RULES)
    def change_host(self, rules: HostRules) -> None:
        self.bench.engine.governance.set_host_rules(rules)
        assert self.host.stats().slots * self.host.slot_bytes <= rules.size

    @rule(load_s=st.sampled_from([1e-6, 1.0]), compute_s=st.sampled_from([1e-3, 0.5]))
    def measure(self, load_s: float, compute_s: float) -> None:
        """Loading a block gets cheaper than computing its two tokens, or dearer."""
        self.host.rates.loaded_bytes.observe(4, load_s)
        self.host._prefill_s_per_token = lambda: compute_s

    @rule(place=st.integers(0, 399))
    def damage(self, place: int) -> None:
        """A bit of host memory flips, of a block or of none: whoever finds it computes again."""
        rows = self.host._arena.rows
        slot = place % (len(rows) - 1) + 1
        if self.host.index.entry_of(slot) is not None:
            rows[slot, place % rows.shape[1]] ^= 1
            self.damaged = True

    @invariant()
    def host_books_hold(self) -> None:
        stats = self.host.stats()
        assert stats.blocks <= stats.slots
        held = dict.fromkeys(stats.scope_counts, 0)
        for holding in stats.holdings:
            held[holding.scope] += holding.blocks
        assert held == {scope: count.resident for scope, count in stats.scope_counts.items()}
        for account in self.host.pool.accounts:
            assert account.held <= self.host.pool.accounts.max_blocks
            assert account.in_use == 0

    @invariant()
    def nothing_from_below_a_purged_floor_is_in_host_memory(self) -> None:
        for scope, floor in zip(SCOPES, self.purged, strict=True):
            assert not self.host.pool.owned_below(scope, floor)

    @invariant()
    def host_memory_belongs_to_its_owner(self) -> None:
        rows = self.host._arena.rows
        assert not rows[0].any()
        for slot in range(1, len(rows)):
            owner = self.host.pool.owner(slot)
            entry = self.host.index.entry_of(slot)
            assert (owner is None) == (entry is None), "a slot is held for nobody"
            if owner is None:
                assert not rows[slot].any(), f"slot {slot} belongs to nobody and holds something"
            elif not self.host._seals[slot].encrypted and not self.damaged:
                mark = MARKS[[scope.tenant for scope in SCOPES].index(owner.tenant)]
                tokens = [int(token) - 1 for token in rows[slot, :4].view("<u2")]
                assert all(token < 200 or token in {mark, mark + 1} for token in tokens)
