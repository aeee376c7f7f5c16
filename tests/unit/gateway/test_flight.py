"""The ledger of held bodies adds up, whatever happens to requests."""

from __future__ import annotations

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fleetward_api.floors import Floors
from fleetward_api.owner import owner_of
from fleetward_api.scope import Scope
from fleetward_gateway.admission.facts import ServiceFacts, TenantFacts
from fleetward_gateway.admission.identity import Authorisation
from fleetward_gateway.proxy.body import BodyBudget, HeldBody
from fleetward_gateway.proxy.flight import Flight, Flights

USERS = st.sampled_from(["", "u", "v"])
SERVICE = ServiceFacts("n", "s", "u", "c", ("m",), None)


def authorisation(tenant: str, floor: int, user: str = "") -> Authorisation:
    facts, known = TenantFacts(tenant, "u", "c"), (floor, floor, 0, 0)
    owner = owner_of(tenant, user=user, floors=known, known=Floors())
    return Authorisation(facts, SERVICE, "m", known, owner, "")


class FlightMachine(RuleBasedStateMachine):
    """Requests of two tenants come, are sent, end, and are fenced, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.flights = Flights()
        self.budget = BodyBudget(1 << 20)
        self.live: list[tuple[Flight, object]] = []
        self.floors = {"a": 0, "b": 0}

    @rule(tenant=st.sampled_from("ab"), size=st.integers(1, 9), user=USERS)
    def begin(self, tenant: str, size: int, user: str) -> None:
        floor = self.floors[tenant]
        held = HeldBody(self.budget)
        held.add(b"x" * size)
        block = self.flights.begin(authorisation(tenant, floor, user), held)
        self.live.append((block.__enter__(), block))

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        flight, _ = data.draw(st.sampled_from(self.live))
        if flight.held_bytes is not None:
            assert flight.take_body()
        with pytest.raises(RuntimeError):
            flight.take_body()

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.live))
        self.live.remove(entry)
        entry[1].__exit__(None, None, None)  # type: ignore[attr-defined]

    @rule(tenant=st.sampled_from("ab"), abort=st.booleans())
    def fence(self, tenant: str, abort: bool) -> None:
        other = "b" if tenant == "a" else "a"
        others = [f.held_bytes for f, _ in self.live if f.owner.tenant == other]
        self.floors[tenant] += 1
        floor = self.floors[tenant]
        held = [f for f, _ in self.live if f.owner.tenant == tenant and f.held_bytes is not None]
        size = sum(f.held_bytes or 0 for f in held)
        fenced = self.flights.fence(Scope(tenant), floor, abort=abort)
        assert fenced.inserted - fenced.evicted == fenced.dropped == len(held)
        assert fenced.dropped_bytes == size
        assert (fenced.hits, fenced.left, fenced.probes) == (0, 0, fenced.dropped)
        older = [f for f, _ in self.live if f.owner.is_below(Scope(tenant), floor)]
        assert fenced.aborted + fenced.finishing == len(older)
        assert fenced.finishing == (0 if abort else len(older) - len(held))
        assert [f.held_bytes for f, _ in self.live if f.owner.tenant == other] == others

    @rule(tenant=st.sampled_from("ab"), user=st.sampled_from("uv"), abort=st.booleans())
    def fence_a_user(self, tenant: str, user: str, abort: bool) -> None:
        """Below a floor that no request has reached: all of the user's, and nobody else's."""
        scope, floor = Scope(tenant, user=user), 1000
        theirs = [f for f, _ in self.live if f.owner.is_below(scope, floor)]
        held = [f for f in theirs if f.held_bytes is not None]
        others = [f.held_bytes for f, _ in self.live if f not in theirs]
        fenced = self.flights.fence(scope, floor, abort=abort)
        assert fenced.inserted - fenced.evicted == fenced.dropped == len(held)
        assert (fenced.hits, fenced.left) == (0, 0)
        assert fenced.aborted == len(theirs if abort else held)
        assert [f.held_bytes for f, _ in self.live if f not in theirs] == others

    @invariant()
    def budget_is_what_is_held(self) -> None:
        assert self.budget.held == sum(f.held_bytes or 0 for f, _ in self.live)
        assert len(self.flights) == len(self.live)
        holding = {f.owner for f, _ in self.live if f.held_bytes is not None}
        assert len(self.flights.ledger) == len(holding)


def test_the_books_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # Outside a task there is nothing to cancel: only the books are looked at here.
    monkeypatch.setattr(Flight, "enter", lambda _self: None)
    run_state_machine_as_test(
        FlightMachine,
        settings=hypothesis_settings(max_examples=60, stateful_step_count=25, deadline=None),
    )
