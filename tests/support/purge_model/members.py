"""What can happen to engines and the gateway, whoever operates them."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.purge_model.cache import Caches
from tests.support.purge_model.fleet import (
    ABSENT,
    ENDED,
    FRESH,
    HOLDS,
    KNOWS,
    LIFE,
    LOST,
    POLICY,
    RUNNING,
    SIGNED,
    TROUBLES,
    UP,
    Shape,
    State,
    changed,
)


class Members:
    """Moves of members, and what calls do to them."""

    def __init__(self, caches: Caches, shape: Shape, *, troubles: int) -> None:
        self._caches = caches
        self._shape = shape
        self._troubles = troubles

    def moves(self, state: State, *, may_be_lost: bool) -> Iterator[State]:
        """Every next state that no operator has a hand in."""
        for number in range(self._shape.members):
            at = self._shape.member[number]
            life = state[at + LIFE]
            if life == ABSENT:
                yield self._new_process(state, number)
            elif life == UP:
                if state[at + FRESH]:
                    # Its first bundle is at least as new as the process: the call is bound to it.
                    for policy in self._caches.history(state[POLICY], state[at + KNOWS]):
                        yield self.pushed(state, number, policy)
                elif state[at + KNOWS] != state[POLICY]:
                    yield self.pushed(state, number, state[POLICY])
                if state[TROUBLES] < self._troubles:
                    yield from self._troubled(state, number, may_be_lost=may_be_lost)

    def _troubled(self, state: State, number: int, *, may_be_lost: bool) -> Iterator[State]:
        worse = changed(state, (TROUBLES, state[TROUBLES] + 1))
        at = self._shape.member[number]
        yield self._new_process(worse, number)
        gone = ((at + KNOWS, 0), (at + FRESH, 1), (at + HOLDS, 0), (at + SIGNED, 0))
        yield changed(worse, (at + LIFE, ENDED), *gone)
        if may_be_lost and number != self._shape.gateway:
            # Before a cut nobody watches over a pod whose object is removed by force: what the
            # protocol promises begins with the members that exist at the cut.
            yield changed(worse, (at + LIFE, LOST))

    def _new_process(self, state: State, number: int) -> State:
        at = self._shape.member[number]
        return changed(
            state,
            (at + LIFE, UP),
            (at + KNOWS, state[POLICY]),
            (at + FRESH, 1),
            (at + HOLDS, 0),
            (at + SIGNED, 0),
        )

    def pushed(self, state: State, number: int, policy: int) -> State:
        """After a push of a policy to a running member."""
        at = self._shape.member[number]
        before = -1 if state[at + FRESH] else state[at + KNOWS]
        taken = self._caches.taken(before, policy)
        if before >= 0 and number != self._shape.gateway and not self._caches.rules.raises:
            taken = before
        return self._saturated(changed(state, (at + KNOWS, taken), (at + FRESH, 0)))

    def removed(self, state: State, number: int, purge: int, floor: int) -> State:
        """After an engine removed a scope and signed; asked again, it only repeats the receipt."""
        at = self._shape.member[number]
        bit = 1 << purge
        if number == self._shape.gateway:
            return changed(state, (at + SIGNED, state[at + SIGNED] | bit))
        if state[at + SIGNED] & bit and self._caches.rules.remembers_receipts:
            return state
        left = self._caches.remaining(state[at + HOLDS], purge, floor)
        signed = state[at + SIGNED] | bit
        return self._saturated(changed(state, (at + HOLDS, left), (at + SIGNED, signed)))

    def _saturated(self, state: State) -> State:
        """Every request that may arrive has arrived: holding less is never worse."""
        gateway = self.issued(state)
        changes = []
        for number in range(self._shape.gateway):
            at = self._shape.member[number]
            if state[at + LIFE] in RUNNING and not state[at + FRESH]:
                grown = self._caches.grown(state[at + KNOWS], gateway)
                changes.append((at + HOLDS, state[at + HOLDS] | grown))
        return changed(state, *changes)

    def issued(self, state: State) -> int:
        """The newest policy whose floors stand in any token."""
        return state[self._shape.member[self._shape.gateway] + KNOWS]
