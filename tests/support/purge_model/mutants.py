"""Faults put into the transition function, and into what stands beside it: each must be found."""

from __future__ import annotations

import inspect
import types
from dataclasses import dataclass

from fleetward_operator.core.purge import transition
from tests.support.purge_model.cache import Content, Rules
from tests.support.purge_model.explorer import Bounds
from tests.support.purge_model.machine import Advance


@dataclass(frozen=True, slots=True)
class Mutant:
    """One place of the transition's source, changed; `finds` begins the fault it must lead to."""

    before: str
    after: str
    finds: tuple[str, ...]


def _without_floors(content: Content) -> object:
    return content.kind, content.epoch


MUTANTS = {
    "a vanished pod counts as dead": Mutant(
        "Standing.UNPROVED, detail=event.why",
        "Standing.DEAD, detail=event.why",
        ("S2",),
    ),
    "at the deadline everybody has signed": Mutant(
        "return replace(member, standing=Standing.UNPROVED, detail=detail)",
        "return replace(member, standing=Standing.SIGNED, detail=detail)",
        ("S2",),
    ),
    "sums that do not add up are fine": Mutant(
        "Standing.FAULTY if event.faults else Standing.SIGNED", "Standing.SIGNED", ("S2",)
    ),
    "one proof is enough for all": Mutant(
        "all(one.standing in PROVED for one in state.members)",
        "any(one.standing in PROVED for one in state.members)",
        ("S2", "S3"),
    ),
    "doubts about the whole purge are forgotten": Mutant(
        "proved = not state.caveats and all(", "proved = all(", ("S3",)
    ),
    "a receipt from before the fence is taken": Mutant(
        "or event.floor < state.floor", "or False", ("S2", "S3")
    ),
    "a member is believed before it signed": Mutant(
        "    return replace(member, standing=Standing.FENCED)",
        "    return replace(member, standing=Standing.SIGNED)",
        ("S2",),
    ),
    "one receipt is enough to go on": Mutant(
        "if state.phase is Phase.PURGING and state.settled:",
        "if state.phase is Phase.PURGING and state.uids(Standing.SIGNED):",
        ("L1", "S3"),
    ),
    "the deadline never comes": Mutant("if now < state.deadline or", "if True or", ("L1",)),
    "no ack is ever good enough": Mutant(
        "event.floors_version < state.cut", "event.floors_version <= state.cut", ("L1",)
    ),
    "a withdrawn purge goes on": Mutant(
        "        case Withdrawn():\n            return _withdrawn(state, event)\n",
        "        case Withdrawn():\n            return replace(state, members=())\n",
        ("S2",),
    ),
}

WORLDS = (
    Bounds(troubles=0),
    Bounds(troubles=1, clock=False, engines=1),
    Bounds(troubles=0, clock=False, broken=True),
    Bounds(troubles=0, engines=1, rules=Rules(raises=False)),
)
"""Where mutants are looked for: without a mutant, nothing is wrong in any of them.

In the last one engines ack a fence that they do not raise: no receipt of theirs may count.
"""

FAULTY_WORLDS = {
    "members are listed before the floor is raised": (
        Bounds(troubles=0, clock=False, engines=1, newcomers=1, lists_first=True),
        ("S2",),
    ),
    "an engine serves old tokens from cache": (
        Bounds(troubles=1, clock=False, engines=1, rules=Rules(refuses_old_tokens=False)),
        ("S1", "S2"),
    ),
    "a removal takes the whole tenant for one user": (
        Bounds(purges=2, troubles=0, clock=False, engines=1, rules=Rules(separates=False)),
        ("S4",),
    ),
    "lookups do not look at floors": (
        Bounds(troubles=0, clock=False, rules=Rules(key=_without_floors)),
        ("S1",),
    ),
}
"""Worlds with a fault beside the transition: these show that the properties look."""


def mutated(mutant: Mutant) -> Advance:
    """The production function with one place of its source changed."""
    source = inspect.getsource(transition)
    if source.count(mutant.before) != 1:
        raise AssertionError(f"{mutant.before!r} is not in the source once")
    module = types.ModuleType("mutated_transition")
    code = compile(source.replace(mutant.before, mutant.after), "mutated", "exec")
    exec(code, module.__dict__)  # noqa: S102
    advance: Advance = module.__dict__["advance"]
    return advance
