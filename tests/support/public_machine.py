"""The engine's state machine with public prefixes that come and go under everything else."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from fleetward_engine.errors import RequestRefused
from fleetward_engine.public_prefixes import plan_public
from fleetward_engine.public_tenant import PUBLIC_TENANT
from fleetward_engine.share_rules import ShareRules
from tests.support.engine_core import make_request
from tests.support.engine_machine import MARKS, NO_SHARES, SCOPES, SHARES, EngineMachine

PUBLIC = 150
"""Public texts are of this token and the next, which no tenant's own text has."""
FORMS = st.lists(st.lists(st.sampled_from([PUBLIC, PUBLIC + 1]), max_size=5).map(tuple), max_size=2)


class PublicMachine(EngineMachine):
    """Tenants' prompts begin with public tokens, declared or not."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[tuple[int, ...]] = []

    @rule(forms=FORMS)
    def declare(self, forms: list[tuple[int, ...]]) -> None:
        self.forms = forms
        self._declare()

    @rule(rules=SHARES | NO_SHARES)
    def share(self, rules: ShareRules) -> None:
        """Other shares, as ever with what is set apart for the forms in force."""
        blocks = self.bench.engine.public.plan.blocks
        self.bench.engine.governance.set_share_rules(replace(rules, public_blocks=blocks))

    def _declare(self) -> None:
        engine = self.bench.engine
        plan = plan_public(self.forms, block_size=2, num_blocks=12, max_tokens=100)
        engine.public.declare(self._public_root() if plan.forms else None, plan)
        rules = replace(engine._kv_cache.pool.accounts.rules, public_blocks=plan.blocks)
        engine.governance.set_share_rules(rules)
        engine.governance.overwrite_dirty()

    def _public_root(self) -> bytes:
        return hashlib.sha256(f"public/{self.epoch}".encode()).digest()

    @rule(
        who=st.integers(0, 2),
        head=st.lists(st.sampled_from([PUBLIC, PUBLIC + 1]), max_size=6),
        own=st.integers(1, 3),
        count=st.integers(1, 3),
    )
    def submit_public(self, who: int, head: list[int], own: int, count: int) -> None:
        name = str(len(self.prompts))
        prompt = [*head, *[MARKS[who]] * own]
        request = make_request(
            name,
            prompt,
            scope=SCOPES[who],
            floor=self.floors[who],
            epoch=self.epoch,
            max_tokens=count,
            arrival=self.bench.clock.now,
            priority=0,
            weight=who + 1,
        )
        request = replace(request, cache=replace(request.cache, public_root=self._public_root()))
        try:
            self.bench.engine.add_request(request)
        except RequestRefused:
            assert len(prompt) + count - 1 > self.bench.engine._kv_cache.max_request_tokens
            return
        self.prompts[name] = (prompt, count)
        self.requests[name] = request
        self.live.add(name)

    @rule()
    def rotate(self) -> None:
        """New roots: the public prefixes are computed under the new one, all else expires."""
        self.epoch += 1
        self._declare()
        engine = self.bench.engine
        engine.governance.limit_ttls(idle_ttl_ms=0, max_ttl_ms=0)
        engine.governance.expire(self.bench.clock.now)
        assert engine.stats().cached_blocks == 0

    @invariant()
    def public_blocks_are_what_was_declared(self) -> None:
        cache, plan = self.bench.engine._kv_cache, self.bench.engine.public.plan
        declared = {form[start : start + 2] for form in plan.forms for start in range(0, 9, 2)}
        entries = cache.index.public_entries()
        assert len(entries) <= max(0, plan.blocks - 1)
        for entry in entries:
            block = tuple(int(token) - 1 for token in self.bench.runner._kv[entry.block])
            assert block in declared
        for sequence in self.bench.engine._scheduler.running:
            for found in map(cache.index.entry_of, sequence.block_table[: sequence.num_public]):
                assert found is None or found.is_public

    @invariant()
    def shares_hold(self) -> None:
        accounts = self.bench.engine._kv_cache.pool.accounts
        # Without a limit a tenant's cache may lie in what is set apart, until that is used.
        largest = 12 if accounts.rules.max_percent == 100 else accounts.max_blocks
        for account in accounts:
            limit = max(largest, account.in_use)
            assert account.tenant == PUBLIC_TENANT or account.held <= limit
        assert all(choice.owner != PUBLIC_TENANT for choice in self.evictions.choices)
        self.evictions.check()

    @invariant()
    def bytes_belong_to_their_owner(self) -> None:
        pool, kv = self.bench.engine._kv_cache.pool, self.bench.runner._kv
        marks = {scope.tenant: {mark, mark + 1} for scope, mark in zip(SCOPES, MARKS, strict=True)}
        for block in range(1, pool.num_blocks + 1):
            owner = pool.owner(block)
            held = {int(token) - 1 for token in kv[block] if token}
            if owner is None:
                assert not held, f"block {block} belongs to nobody and holds {held}"
            elif owner.tenant != PUBLIC_TENANT:
                own = marks[owner.tenant] | {PUBLIC, PUBLIC + 1}
                assert all(token < PUBLIC or token in own for token in held)
            else:
                # The engine's own request chooses one token, whose KV it never computes.
                assert held <= {PUBLIC, PUBLIC + 1}
