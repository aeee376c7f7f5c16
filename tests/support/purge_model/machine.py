"""Purge states by number, advanced by the product's transition function, each once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fleetward_operator.core.purge.codec import decode_state, encode_state
from fleetward_operator.core.purge.events import PurgeCommand, PurgeEvent, Tick
from fleetward_operator.core.purge.plan import LOST_RECORD
from fleetward_operator.core.purge.state import FINAL, Phase, PurgeState

Advance = Callable[..., tuple[PurgeState, tuple[PurgeCommand, ...]]]
DEADLINE = 100.0


class Machine:
    """The states of one purge that occur, and where events lead from them."""

    def __init__(self, advance: Advance) -> None:
        self._advance = advance
        self._states: list[PurgeState] = []
        self._numbers: dict[PurgeState, int] = {}
        self._next: dict[tuple[int, PurgeEvent, int], int] = {}
        self._commands: dict[int, tuple[PurgeCommand, ...]] = {}
        self._swapped: dict[int, int] = {}
        self.first = self.number(PurgeState(deadline=DEADLINE))
        self.lost = self.number(PurgeState(deadline=DEADLINE, caveats=(LOST_RECORD,)))

    def __len__(self) -> int:
        return len(self._states)

    def state(self, number: int) -> PurgeState:
        """A purge's state."""
        return self._states[number]

    def number(self, state: PurgeState) -> int:
        """Its number. Times of people are left out: they would only multiply the states."""
        state = replace(state, started_at=0.0)
        known = self._numbers.get(state)
        if known is None:
            if decode_state(encode_state(state)) != state:
                raise AssertionError(f"a record does not keep {state}")
            known = self._numbers[state] = len(self._states)
            self._states.append(state)
        return known

    def after(self, number: int, event: PurgeEvent, *, late: int) -> int:
        """Where an event leads at a time before or after the deadline."""
        step = (number, event, late)
        known = self._next.get(step)
        if known is None:
            now = DEADLINE if late else 0.0
            state, _ = self._advance(self._states[number], event, now=now)
            known = self._next[step] = self.number(state)
        return known

    def commands(self, number: int) -> tuple[PurgeCommand, ...]:
        """What a state asks for."""
        known = self._commands.get(number)
        if known is None:
            # A tick long before the deadline changes nothing but tells the commands.
            state = self._states[number]
            _, known = self._advance(state, _TICK, now=-DEADLINE)
            self._commands[number] = known
        return known

    def over(self, number: int) -> int:
        """An ended purge without what nobody asks for any more."""
        state = self._states[number]
        if state.phase not in FINAL:
            raise AssertionError(f"{state.phase} is no end")
        phase = state.phase
        return self.number(
            PurgeState(deadline=DEADLINE, phase=phase, floor=state.floor, cut=state.cut)
        )

    def swapped(self, number: int) -> int:
        """The same state with engines 0 and 1 having each other's uid."""
        known = self._swapped.get(number)
        if known is None:
            state = self._states[number]
            names = {"0": "1", "1": "0"}
            members = [
                replace(one, uid=names.get(one.uid, one.uid), name=names.get(one.name, one.name))
                for one in state.members
            ]
            members.sort(key=lambda one: (one.kind, one.uid))
            known = self._swapped[number] = self.number(replace(state, members=tuple(members)))
        return known


_TICK = Tick()
PHASES = tuple(Phase)
