"""Any order of events on an engine with a tiny pool, checked after each against what must hold."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from fleetward_api.scope import Scope
from fleetward_engine.errors import RequestRefused
from fleetward_engine.outputs import RequestOutput
from fleetward_engine.request import Request
from fleetward_engine.scheduling.policy import SchedulingPolicy
from fleetward_engine.share_rules import ShareRules
from tests.support.engine_core import expected_tokens, make_bench, make_request
from tests.support.watched_evictions import WatchedEvictions

SCOPES = [Scope("acme"), Scope("beta"), Scope("gamma")]
MARKS = [200, 210, 220]
"""Each scope's prompts use two tokens of their own, so that a stray byte tells whose it is."""
POLICIES = st.sampled_from(
    [SchedulingPolicy(), SchedulingPolicy("priority", 2.0), SchedulingPolicy("weighted-fair")]
)
TTLS = st.sampled_from([None, None, None, 1, 1000, 5000])
SELDOM = st.sampled_from([False, False, False, True])
SHARES = st.builds(
    ShareRules,
    max_percent=st.sampled_from([45, 60, 75]),
    guaranteed_percent=st.sampled_from([0, 25, 25]),
    protected_percent=st.sampled_from([0, 50, 100]),
    by_priority=st.booleans(),
)
NO_SHARES = st.builds(
    ShareRules, protected_percent=st.sampled_from([0, 50]), by_priority=st.booleans()
)


class EngineMachine(RuleBasedStateMachine):
    """Tiny pool, tiny budget: everything collides with everything.

    `steps` counts the events of all machines of this process, each followed by all checks.
    """

    steps: ClassVar[int] = 0
    HOST_BYTES: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.bench = make_bench(
            num_blocks=12,
            block_size=2,
            max_num_seqs=3,
            max_num_batched_tokens=5,
            host_kv_cache_memory_bytes=self.HOST_BYTES,
            verify_kv=True,  # nothing that the engine does itself may change a cached block
        )
        self.evictions = WatchedEvictions(self.bench.engine._kv_cache)
        self.epoch = 1
        self.floors = [0, 0, 0]
        self.purged = [0, 0, 0]
        self.prompts: dict[str, tuple[list[int], int]] = {}
        self.requests: dict[str, Request] = {}
        self.live: set[str] = set()
        self.removed_keys: set[bytes] = set()

    @initialize(rules=SHARES | NO_SHARES)
    def start(self, rules: ShareRules) -> None:
        self.bench.engine.governance.set_share_rules(rules)

    @rule(
        who=st.integers(0, 2),
        length=st.integers(1, 9),
        split=st.integers(0, 9),
        count=st.integers(1, 6),
        stale=SELDOM,
        no_store=SELDOM,
        ttls=st.tuples(TTLS, TTLS),
        kind=st.sampled_from(["", "short"]),
        priority=st.integers(-1, 1),
        patience=st.sampled_from([math.inf, math.inf, 0.5, 4.0]),
    )
    def submit(  # type: ignore[no-untyped-def]
        self, who, length, split, count, stale, no_store, ttls, kind, priority, patience
    ) -> None:
        name = str(len(self.prompts))
        prompt = [MARKS[who] + (1 if place >= split else 0) for place in range(length)]
        request = make_request(
            name,
            prompt,
            scope=SCOPES[who],
            floor=max(0, self.floors[who] - 1) if stale else self.floors[who],
            epoch=self.epoch,
            store=not no_store,
            idle_ttl_ms=ttls[0],
            max_ttl_ms=ttls[1],
            retention_class=kind,
            max_tokens=count,
            arrival=self.bench.clock.now,
            priority=priority,
            weight=who + 1,
            deadline=self.bench.clock.now + patience,
        )
        self._add(request, prompt, count)

    @rule(
        who=st.integers(0, 2),
        length=st.integers(1, 9),
        count=st.integers(1, 4),
        choices=st.integers(2, 4),
        no_store=SELDOM,
    )
    def fork(self, who: int, length: int, count: int, choices: int, no_store: bool) -> None:
        """Several choices of one prompt: all but the first wait until it is computed."""
        name = str(len(self.prompts))
        self.submit(who, length, 0, count, False, no_store, (None, None), "", 0, math.inf)
        first = self.requests.get(name)
        for choice in range(1, choices if first is not None else 0):
            assert first is not None
            copy = replace(first, request_id=str(len(self.prompts)), choice=choice, fork_of=name)
            self._add(copy, *self.prompts[name])

    def _add(self, request: Request, prompt: list[int], count: int) -> None:
        try:
            self.bench.engine.add_request(request)
        except RequestRefused:
            assert len(prompt) + count - 1 > self.bench.engine._kv_cache.max_request_tokens
            return
        self.prompts[request.request_id] = (prompt, count)
        self.requests[request.request_id] = request
        self.live.add(request.request_id)

    @rule(who=st.integers(0, 2), prompts=st.integers(1, 3), length=st.integers(3, 9))
    def flood(self, who: int, prompts: int, length: int) -> None:
        """One tenant fills what it may; everyone's requests come to their end."""
        for split in range(prompts):
            self.submit(who, length, split, 1, False, False, (None, None), "", 0, math.inf)
        for _ in range(1000):
            if not self.bench.engine.has_work:
                break
            EngineMachine.steps += 1
            self._step()
        assert not self.bench.engine.has_work

    @precondition(lambda self: self.bench.engine.has_work)
    @rule(times=st.integers(1, 5))
    def step(self, times: int) -> None:
        EngineMachine.steps += times - 1
        for _ in range(times):
            self._step()

    def _step(self) -> None:
        for output in self.bench.step():
            self._check(output)
        self.shares_hold()

    def _check(self, output: RequestOutput) -> None:
        name = output.request_id
        if output.finish_reason is None:
            return
        self.live.discard(name)
        prompt, count = self.prompts[name]
        if output.finish_reason == "length":
            assert self.bench.tokens(name) == expected_tokens(prompt, count)
        elif output.finish_reason == "deadline":
            request = self.requests[name]
            assert request.deadline <= self.bench.clock.now
        elif output.finish_reason == "error":
            assert "share" in (output.error or "")
        else:
            assert output.finish_reason == "abort"

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.live)))
        # A fence may have ended it already; then its last output is still on its way.
        known = name in self.bench.engine._requests.ids
        assert self.bench.engine.abort_request(name) == known
        if known:
            self.live.discard(name)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        self.bench.engine.preempt(data.draw(st.sampled_from(sorted(self.live))))

    @rule(seconds=st.sampled_from([0.001, 0.5, 3.0, 6.0]))
    def wait(self, seconds: float) -> None:
        self.bench.clock.advance(seconds)

    @rule()
    def expire(self) -> None:
        self.bench.engine.governance.expire(self.bench.clock.now)

    @rule(limit=TTLS)
    def limit_ttls(self, limit: int | None) -> None:
        self.bench.engine.governance.limit_ttls(idle_ttl_ms=limit, max_ttl_ms=None)

    @rule(policy=POLICIES)
    def order_by(self, policy: SchedulingPolicy) -> None:
        self.bench.engine.set_scheduling(policy)

    @rule(rules=SHARES | NO_SHARES)
    def share(self, rules: ShareRules) -> None:
        self.bench.engine.governance.set_share_rules(rules)

    @rule()
    def rotate(self) -> None:
        """As the policy desk does at a new epoch: new roots, and what old ones keyed expires."""
        self.epoch += 1
        self.bench.engine.governance.limit_ttls(idle_ttl_ms=0, max_ttl_ms=0)
        self.bench.engine.governance.expire(self.bench.clock.now)
        stats = self.bench.engine.stats()
        assert stats.cached_blocks == stats.host.blocks == 0

    @rule(who=st.integers(0, 2), in_flight=st.sampled_from(["Finish", "Abort"]))
    def fence(self, who: int, in_flight) -> None:  # type: ignore[no-untyped-def]
        self.floors[who] += 1
        self.bench.engine.governance.fence(SCOPES[who], self.floors[who], in_flight)

    @rule(who=st.integers(0, 2), in_flight=st.sampled_from(["Finish", "Abort"]))
    def purge(self, who: int, in_flight) -> None:  # type: ignore[no-untyped-def]
        engine, scope = self.bench.engine, SCOPES[who]
        self.floors[who] += 1
        floor = self.purged[who] = self.floors[who]
        engine.governance.fence(scope, floor, in_flight)
        counts = engine.governance.purge(scope, floor, scrub=True)
        self.removed_keys |= set(counts.removed_keys)
        assert engine._kv_cache.index.counts(scope).resident == 0 or in_flight == "Finish"
        assert engine.governance.recount(scope, floor) == 0
        assert engine.governance.residue(scope, floor) == counts.blocks_in_use
        if in_flight == "Abort":
            assert counts.blocks_in_use == 0

    @invariant()
    def books_hold(self) -> None:
        EngineMachine.steps += 1
        self.bench.engine.check_integrity()
        assert self.bench.engine.governance.probe(sorted(self.removed_keys)) == 0
        held = {holding.scope: 0 for holding in self.bench.engine.stats().holdings}
        for holding in self.bench.engine.stats().holdings:
            held[holding.scope] += holding.blocks
        counts = self.bench.engine.stats().scope_counts
        assert held == {scope: count.resident for scope, count in counts.items()}

    @invariant()
    def shares_hold(self) -> None:
        accounts = self.bench.engine._kv_cache.pool.accounts
        for account in accounts:
            assert account.held <= accounts.max_blocks or account.cached == 0
        self.evictions.check()

    @invariant()
    def nothing_from_below_a_purged_floor_outlives_its_request(self) -> None:
        pool = self.bench.engine._kv_cache.pool
        for scope, floor in zip(SCOPES, self.purged, strict=True):
            assert self.bench.engine.governance.recount(scope, floor) == 0
            assert all(pool.ref_count(block) > 0 for block in pool.owned_below(scope, floor))

    @invariant()
    def bytes_belong_to_their_owner(self) -> None:
        pool, kv = self.bench.engine._kv_cache.pool, self.bench.runner._kv
        assert not kv[0].any()
        for block in range(1, pool.num_blocks + 1):
            owner = pool.owner(block)
            held = {int(token) - 1 for token in kv[block] if token}
            if owner is None:
                assert not held, f"block {block} belongs to nobody and holds {held}"
            else:
                mark = MARKS[SCOPES.index(owner.scope)]
                assert all(token < 200 or token in {mark, mark + 1} for token in held)

    def teardown(self) -> None:
        for _ in range(1000):
            if not self.bench.engine.has_work:
                break
            for output in self.bench.step():
                self._check(output)
        stats = self.bench.engine.stats()
        assert (stats.requests, stats.running, stats.waiting, stats.kv_blocks_used) == (0, 0, 0, 0)
