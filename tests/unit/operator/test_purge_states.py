"""Every state of a purge, and mutations of its transition function that must be found."""

from __future__ import annotations

import inspect
import sys
import types

import pytest

from fleetward_operator.core.purge import transition
from fleetward_operator.core.purge.codec import decode_state, encode_state
from fleetward_operator.core.purge.state import Phase
from tests.support.purge_world import Advance, Explorer, first_fleet

MUTATIONS = {
    "a vanished pod counts as dead": (
        "Standing.UNPROVED, detail=event.why",
        "Standing.DEAD, detail=event.why",
    ),
    "at the deadline everybody has signed": (
        "replace(member, standing=Standing.UNPROVED, detail=detail)",
        "replace(member, standing=Standing.SIGNED, detail=detail)",
    ),
    "sums that do not add up are fine": (
        "Standing.FAULTY if event.faults else Standing.SIGNED",
        "Standing.SIGNED",
    ),
    "one proof is enough for all": (
        "all(one.standing in PROVED for one in state.members)",
        "any(one.standing in PROVED for one in state.members)",
    ),
    "one fence is enough to go on": (
        "fenced = not state.uids(Standing.EXPECTED)",
        "fenced = bool(state.uids(Standing.FENCED))",
    ),
    "an early ack undoes the wait for others": (
        "if state.phase is Phase.PURGING and state.settled:",
        "if state.phase is Phase.PURGING:",
    ),
    "the deadline never comes": (
        "if now < state.deadline or",
        "if True or",
    ),
}


def explore(advance: Advance) -> tuple[str, int, set[tuple[Phase, ...]]]:
    """The first fault in any of three worlds, the number of states, and how purges ended."""
    states = 0
    ends: set[tuple[Phase, ...]] = set()
    for purges, troubles, broken in ((1, 1, False), (1, 1, True), (2, 0, False)):
        explorer = Explorer(advance, troubles=troubles, deadlines=purges == 1)
        fleet = first_fleet(purges=purges, newcomer=purges == 1, broken=broken)
        fault = explorer.explore(fleet)
        states += len(explorer.visited)
        ends |= explorer.ends
        if fault:
            return fault, states, ends
    return "", states, ends


def test_every_reachable_state_keeps_the_promises(capsys: pytest.CaptureFixture[str]) -> None:
    fault, states, ends = explore(transition.advance)
    assert fault == ""
    assert {(Phase.COMPLETED,), (Phase.INCOMPLETE,)} <= ends
    assert (Phase.COMPLETED, Phase.COMPLETED) in ends
    with capsys.disabled():
        sys.stdout.write(f"\npurge states explored: {states}\n")


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_of_the_transition_is_found(name: str) -> None:
    before, after = MUTATIONS[name]
    fault, _, _ = explore(mutated(before, after))
    assert fault.startswith(("S2", "S3", "L1")), fault


def mutated(before: str, after: str) -> Advance:
    """The production function with one place of its source changed."""
    source = inspect.getsource(transition)
    assert source.count(before) == 1, f"{before!r} is not in the source once"
    module = types.ModuleType("mutated_transition")
    exec(compile(source.replace(before, after), "mutated", "exec"), module.__dict__)  # noqa: S102
    advance: Advance = module.__dict__["advance"]
    return advance


def test_a_state_survives_its_codec() -> None:
    explorer = Explorer(transition.advance, troubles=1, deadlines=True)
    explorer.explore(first_fleet(purges=1, newcomer=False))
    states = {fleet.purges[0] for fleet in explorer.visited}
    assert len(states) > 20
    for state in states:
        assert decode_state(encode_state(state)) == state


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"members": [{"x": 1}]}', "null"])
def test_what_is_no_state_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_state(text)
