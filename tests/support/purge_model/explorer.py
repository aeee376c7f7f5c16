"""Visits every state of a fleet under purges that any order of events can reach."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fleetward_api.scope import Scope
from fleetward_operator.core.purge.state import Phase
from tests.support.purge_model.cache import HONEST, USER, Caches, Rules
from tests.support.purge_model.fleet import (
    ABSENT,
    BEFORE,
    KEPT,
    LATE,
    MEMORY,
    OVERDUE,
    PER_MEMBER,
    POLICY,
    TROUBLES,
    UP,
    Shape,
    State,
    changed,
    pack,
    unpack,
)
from tests.support.purge_model.machine import Advance, Machine
from tests.support.purge_model.members import Members
from tests.support.purge_model.operator import Operator
from tests.support.purge_model.properties import Properties


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much happens: purges (the tenant's, then one nested in it), pods, troubles.

    A trouble is a restart, a death or a loss of a member, the loss of the floors' record, the
    deletion of the CachePurge, a write that outlives its leader. Deaths of operators, lost, late
    and repeated calls, and time are never counted: they may happen at every step. Without `keeps`
    an operator that dies loses everything since the cut.
    """

    purges: int = 1
    engines: int = 2
    newcomers: int = 0
    troubles: int = 1
    clock: bool = True
    keeps: bool = True
    broken: bool = False
    nested: Scope = USER
    lists_first: bool = False
    rules: Rules = field(default=HONEST, repr=False)


class Explorer:
    """Breadth first, each state once; engines 0 and 1 are alike, so that mirror images are one."""

    def __init__(self, advance: Advance, bounds: Bounds) -> None:
        self._bounds = bounds
        self._shape = Shape(
            engines=bounds.engines, newcomers=bounds.newcomers, purges=bounds.purges
        )
        self._machine = Machine(advance)
        self._caches = Caches(bounds.nested, bounds.rules)
        self._members = Members(self._caches, self._shape, troubles=bounds.troubles)
        self._operator = Operator(
            self._machine,
            self._caches,
            self._members,
            self._shape,
            troubles=bounds.troubles,
            keeps=bounds.keeps,
            broken=1 if bounds.broken else -1,
            lists_first=bounds.lists_first,
        )
        self._properties = Properties(
            self._machine, self._caches, self._members, self._operator, self._shape
        )
        self.states = 0
        self.steps = 0
        self.purge_states = 0
        self.ends: set[tuple[Phase, ...]] = set()

    def explore(self, *, limit: int = 0) -> str:
        """The first violation met, or the empty string when there is none in any state.

        Args:
            limit: states after which to give up with an error; 0: never.
        """
        first = self._first()
        visited = {pack(first)}
        waiting = [pack(first)]
        fault = ""
        while waiting and not fault:
            following: list[bytes] = []
            for packed in waiting:
                state = unpack(packed)
                fault = self._properties.fault(state) or self._visit(state, visited, following)
                if fault:
                    break
                if limit and len(visited) > limit:
                    raise AssertionError(f"more than {limit} states")
            waiting = following
        self.states, self.purge_states = len(visited), len(self._machine)
        return fault

    def _visit(self, state: State, visited: set[bytes], following: list[bytes]) -> str:
        ended = self._properties.ends(state)
        if ended:
            self.ends.add(ended)
        for after in self._next(state):
            self.steps += 1
            fault = self._properties.step_fault(state, after)
            if fault:
                return fault
            packed = pack(self._canonical(after))
            if packed not in visited:
                visited.add(packed)
                following.append(packed)
        return ""

    def _first(self) -> State:
        members: list[int] = []
        for number in range(self._shape.members):
            newcomer = self._bounds.engines <= number < self._shape.gateway
            life = ABSENT if newcomer else UP
            members += [life, 0, 1 if newcomer else 0, 0, 0]
        purge = [self._machine.first + 1, 0, 0, 0, 0, 0, 0]
        bare: State = (0, 0, 0, *members, *purge * self._bounds.purges)
        # Before anything happens the engines already hold all that they can.
        return self._members.pushed(bare, self._shape.gateway, 0)

    def _next(self, state: State) -> Iterator[State]:
        if self._properties.ends(state):
            # All told: members may still fall over and start again.
            yield from self._members.moves(state, may_be_lost=False)
            return
        yield from self._members.moves(state, may_be_lost=self._all_cut(state))
        for purge in range(self._bounds.purges):
            yield from self._operator.moves(state, purge)
        if self._bounds.clock:
            # Clocks go on, and may be set back.
            yield changed(state, (LATE, 1 - state[LATE]))
        if state[TROUBLES] < self._bounds.troubles:
            yield changed(
                state,
                (POLICY, self._caches.rotated(state[POLICY])),
                (TROUBLES, state[TROUBLES] + 1),
            )

    def _all_cut(self, state: State) -> bool:
        return all(state[self._shape.purge[n] + KEPT] for n in range(self._bounds.purges))

    def _canonical(self, state: State) -> State:
        if self._bounds.broken or self._bounds.engines < 2:
            return state
        one, two = self._shape.member[0], self._shape.member[1]
        first, second = state[one : one + PER_MEMBER], state[two : two + PER_MEMBER]
        if first < second:
            return state
        fields = list(state)
        fields[one : one + PER_MEMBER] = second
        fields[two : two + PER_MEMBER] = first
        for number in range(self._bounds.purges):
            at = self._shape.purge[number]
            for place in (at + MEMORY, at + KEPT, at + OVERDUE):
                if state[place]:
                    fields[place] = self._machine.swapped(state[place] - 1) + 1
            before = state[at + BEFORE]
            fields[at + BEFORE] = before & ~3 | (before & 1) << 1 | before >> 1 & 1
        mirrored = tuple(fields)
        return mirrored if first > second else min(state, mirrored)
