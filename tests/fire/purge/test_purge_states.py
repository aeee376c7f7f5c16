"""Every state of purges, and faults in their transition function that must be found."""

from __future__ import annotations

import sys
import time

import pytest

from e2e.chaos.scale import is_full
from e2e.figures.record import record
from fleetward_api.scope import Scope
from fleetward_operator.core.purge.codec import decode_state
from fleetward_operator.core.purge.events import (
    Acked,
    AskReceipts,
    CutMade,
    Fence,
    ReceiptVerified,
    ReleasePods,
    StoreEvidence,
    Withdrawn,
)
from fleetward_operator.core.purge.state import Member, Phase, PurgeState, Standing
from fleetward_operator.core.purge.transition import advance, commands_of
from tests.support.purge_model.cache import TENANT
from tests.support.purge_model.explorer import Bounds, Explorer
from tests.support.purge_model.mutants import FAULTY_WORLDS, MUTANTS, WORLDS, mutated

SHORT = (
    Bounds(troubles=1, clock=False),
    Bounds(troubles=0),
    Bounds(troubles=0, clock=False, engines=1, newcomers=1),
    Bounds(troubles=0, broken=True),
    Bounds(purges=2, troubles=0, clock=False, keeps=False, engines=1),
)
FULL = (
    Bounds(troubles=1),
    Bounds(troubles=1, clock=False, engines=1, newcomers=1),
    Bounds(troubles=2, clock=False, engines=1),
    Bounds(purges=2, troubles=0, keeps=False, engines=1),
    Bounds(purges=2, troubles=0, clock=False, keeps=False),
    *(
        Bounds(purges=2, troubles=1, clock=False, keeps=False, engines=1, nested=nested)
        for nested in (
            Scope(TENANT.tenant, user="u"),
            Scope(TENANT.tenant, permission_scope="p"),
            Scope(TENANT.tenant, document_tag="d"),
        )
    ),
)
MOST_STATES = 3_000_000


def test_every_reachable_state_keeps_the_promises(capsys: pytest.CaptureFixture[str]) -> None:
    states, steps = 0, 0
    ends: set[tuple[Phase, ...]] = set()
    faults: list[str] = []
    for bounds in (*SHORT, *FULL) if is_full() else SHORT:
        explorer = Explorer(advance, bounds)
        began = time.monotonic()
        fault = explorer.explore(limit=MOST_STATES)
        states, steps, ends = states + explorer.states, steps + explorer.steps, ends | explorer.ends
        faults += [fault] if fault else []
        with capsys.disabled():
            sys.stdout.write(
                f"\n{explorer.states} states, {explorer.steps} steps, "
                f"{time.monotonic() - began:.0f} s: {bounds}\n"
            )
    if is_full():
        record("purge-violations", len(faults), f"{states} states, {steps} steps")
        record("purge-states-explored", states, f"{steps} steps, every bound exhausted")
    assert not faults, faults[0]
    ended = (Phase.COMPLETED, Phase.INCOMPLETE)
    assert {(phase,) for phase in ended} <= ends
    assert (Phase.COMPLETED, Phase.COMPLETED) in ends
    with capsys.disabled():
        sys.stdout.write(f"purge states explored: {states}\n")


def test_every_mutant_of_the_transition_is_found() -> None:
    missed = {}
    for name, mutant in MUTANTS.items():
        faulty = mutated(mutant)
        found = (Explorer(faulty, world).explore() for world in WORLDS)
        fault = next(filter(None, found), "")
        if not fault.startswith(mutant.finds):
            missed[name] = fault
    if is_full():
        record("purge-mutants-missed", len(missed), f"{len(MUTANTS)} mutants")
    assert not missed


@pytest.mark.parametrize("name", FAULTY_WORLDS)
def test_a_fault_beside_the_transition_is_found(name: str) -> None:
    bounds, finds = FAULTY_WORLDS[name]
    assert Explorer(advance, bounds).explore().startswith(finds)


@pytest.mark.parametrize("world", WORLDS)
def test_nothing_is_wrong_where_mutants_are_looked_for(world: Bounds) -> None:
    assert Explorer(advance, world).explore() == ""


def begun(*uids: str) -> PurgeState:
    members = tuple(Member(kind="engine", namespace="n", name=uid, uid=uid) for uid in uids)
    cut = CutMade(cut=7, floor=2, resource_version="1", members=members)
    return advance(PurgeState(deadline=100.0), cut, now=1.0)[0]


def receipt(uid: str) -> ReceiptVerified:
    return ReceiptVerified(uid=uid, floor=2, receipt="r", binding="b")


def test_whoever_is_fenced_is_asked_while_others_are_not() -> None:
    state, commands = advance(begun("a", "b"), Acked(uid="a", floors_version=7), now=2.0)
    assert commands == (Fence(("b",)), AskReceipts(("a",)))
    state, commands = advance(state, receipt("a"), now=3.0)
    assert (state.phase, commands) == (Phase.FENCING, (Fence(("b",)),))
    assert state.uids(Standing.SIGNED) == ("a",)


def test_pods_are_let_go_before_the_evidence_is_stored() -> None:
    state, _ = advance(begun("a"), Acked(uid="a", floors_version=7), now=2.0)
    state, commands = advance(state, receipt("a"), now=3.0)
    assert (state.phase, commands) == (Phase.VERIFYING, (ReleasePods(), StoreEvidence()))


def test_a_withdrawn_purge_keeps_what_was_shown() -> None:
    state, _ = advance(begun("a", "b"), Acked(uid="a", floors_version=7), now=2.0)
    state, _ = advance(state, receipt("a"), now=3.0)
    state, _ = advance(state, Withdrawn(why="nobody wants it"), now=4.0)
    assert (state.phase, state.uids(Standing.SIGNED)) == (Phase.VERIFYING, ("a",))
    assert "nobody wants it" in state.not_covered[0]
    assert advance(state, Withdrawn(why="again"), now=5.0)[0] == state


def test_a_purge_withdrawn_before_its_cut_has_nothing_to_show() -> None:
    state = PurgeState(deadline=100.0)
    assert advance(state, Withdrawn(why="no"), now=1.0)[0] == state
    assert commands_of(PurgeState(deadline=1.0, phase=Phase.COMPLETED)) == ()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"members": [{"x": 1}]}', "null"])
def test_what_is_no_state_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_state(text)
