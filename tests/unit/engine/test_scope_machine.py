"""Users, permission scopes and tags in one engine: purges of any of them, in any order.

What each request belongs to is decided by the product's own `Floors` and `owner_of`; what a purge
must find is decided here, from a list of all requests.
"""

from __future__ import annotations

from typing import Literal

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fleetward_api.floors import Floors, merge_floors
from fleetward_api.owner import Owner, owner_of
from fleetward_api.scope import Scope
from tests.support.engine_core import make_bench, make_request

USERS = st.sampled_from(["", "u", "v"])
SETS = st.sets(st.sampled_from(["s", "t"]), max_size=2)
SCOPES = [
    Scope("a"), Scope("b"), Scope("a", user="u"), Scope("a", user="v"), Scope("b", user="u"),
    Scope("a", permission_scope="s"), Scope("a", document_tag="s"), Scope("a", document_tag="t"),
]  # fmt: skip
IN_FLIGHT: st.SearchStrategy[Literal["Finish", "Abort"]] = st.sampled_from(["Finish", "Abort"])


class ScopeMachine(RuleBasedStateMachine):
    """A pool so small that everybody evicts everybody, and a gateway that may know less."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = make_bench(num_blocks=14, block_size=2, max_num_seqs=3)
        self.known = Floors()
        self.history = [Floors()]
        self.purged: dict[Scope, int] = {}
        self.count = 0

    @property
    def cached(self) -> dict[bytes, Owner]:
        return {key: each.owner for key, each in self.bench.engine._kv_cache.index._entries.items()}

    @rule(
        tenant=st.sampled_from(["a", "a", "b"]), user=USERS, places=SETS, tags=SETS,
        length=st.integers(2, 9), lag=st.integers(0, 2), data=st.integers(0, 1),
    )  # fmt: skip
    def submit(  # type: ignore[no-untyped-def]
        self, tenant, user, places, tags, length, lag, data
    ) -> None:
        """`lag`: how many purges ago the gateway heard of floors last."""
        issued = self.history[max(0, len(self.history) - 1 - lag)]
        named = {"user": user, "permission_scopes": places, "document_tags": tags}
        token = issued.of_request(tenant, **named)
        owner = owner_of(tenant, **named, floors=token, known=self.known)
        now = self.known.of_request(tenant, **named)
        behind = any(one < fenced for one, fenced in zip(token, now, strict=True))
        self.count += 1
        prompt = [100 + data] * length
        self.bench.engine.add_request(
            make_request(str(self.count), prompt, owner=owner, cached=not behind, max_tokens=2)
        )

    @precondition(lambda self: self.bench.engine.has_work)
    @rule(times=st.integers(1, 4))
    def step(self, times: int) -> None:
        for _ in range(times):
            self.bench.step()

    @rule(scope=st.sampled_from(SCOPES), in_flight=IN_FLIGHT)
    def purge(self, scope: Scope, in_flight: Literal["Finish", "Abort"]) -> None:
        self.history.append(self.history[-1].raised(scope))
        self.known = merge_floors(self.known, self.history[-1])
        floor = self.purged[scope] = self.known.floor_of(scope)
        governance = self.bench.engine.governance
        governance.fence(scope, floor, in_flight)
        before = self.cached
        counts = governance.purge(scope, floor, scrub=True)
        doomed = {key for key, owner in before.items() if owner.is_below(scope, floor)}
        assert set(counts.removed_keys) == doomed
        assert self.cached == {key: owner for key, owner in before.items() if key not in doomed}
        books = counts.counts
        above = books.resident - len(doomed)
        gone = books.evicted + books.expired + books.removed
        assert books.inserted - above - gone == len(doomed)
        assert counts.blocks_in_use == 0 or in_flight == "Finish"

    @rule(tenant=st.sampled_from(["a", "b"]))
    def compact(self, tenant: str) -> None:
        """Finer floors are folded into the tenant's: engines hear of it as of any raise."""
        self.history.append(self.history[-1].compacted(tenant))
        self.known = merge_floors(self.known, self.history[-1])
        floor = self.known.floor_of(Scope(tenant))
        self.bench.engine.governance.fence(Scope(tenant), floor, "Finish")

    @invariant()
    def books_hold(self) -> None:
        self.bench.engine.check_integrity()

    @invariant()
    def nothing_purged_is_cached_or_lies_unused(self) -> None:
        governance, pool = self.bench.engine.governance, self.bench.engine._kv_cache.pool
        for scope, floor in self.purged.items():
            assert governance.recount(scope, floor) == 0
            assert list(pool.unused_below(scope, floor)) == []
            assert pool.count_below(scope, floor) == len(pool.owned_below(scope, floor))
            if not governance.in_flight(scope, floor):
                assert governance.residue(scope, floor) == 0

    @invariant()
    def what_is_kept_of_scopes_is_bounded_by_what_is_held(self) -> None:
        cache = self.bench.engine._kv_cache
        held = {cache.pool.owner(block) for block in range(1, 15)} - {None}
        assert len(cache.pool._estates) == len(held)
        assert len(cache.index._books) == len(set(self.cached.values()))
        # Fences, too: a finer one goes once its tenant's says as much.
        floors = cache._floors
        finer = [scope for scope in floors if scope.kind != "tenant"]
        assert all(floors.of(one) > floors.of(Scope(one.tenant)) for one in finer)


def test_any_scope_is_purged_whole_and_alone() -> None:
    run_state_machine_as_test(
        ScopeMachine,
        settings=hypothesis_settings(max_examples=60, stateful_step_count=30, deadline=None),
    )
