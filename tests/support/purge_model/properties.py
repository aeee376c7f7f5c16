"""What must hold in every state and step of the model: S1 to S4, L1, E1 (docs/purge.md)."""

from __future__ import annotations

from fleetward_operator.core.purge.events import Tick
from fleetward_operator.core.purge.state import FINAL, PROVED, Phase, PurgeState, Standing
from tests.support.purge_model.cache import Caches
from tests.support.purge_model.fleet import (
    FRESH,
    GONE,
    HOLDS,
    KNOWS,
    LATE,
    LIFE,
    MEMORY,
    RUNNING,
    SIGNED,
    STATUS,
    UP,
    Shape,
    State,
)
from tests.support.purge_model.machine import PHASES, Machine
from tests.support.purge_model.members import Members
from tests.support.purge_model.operator import ASKING, Operator

MOST_STEPS = 40


class Properties:
    """Judges states; a fault begins with the property's name."""

    def __init__(
        self,
        machine: Machine,
        caches: Caches,
        members: Members,
        operator: Operator,
        shape: Shape,
    ) -> None:
        self._machine = machine
        self._caches = caches
        self._members = members
        self._operator = operator
        self._shape = shape
        self._live: dict[tuple[int, ...], str] = {}

    def ends(self, state: State) -> tuple[Phase, ...]:
        """The phases told, when every purge has been told to be at its end; else empty."""
        told = [state[self._shape.purge[n] + STATUS] for n in range(self._shape.purges)]
        return tuple(PHASES[one] for one in told) if all(told) else ()

    def fault(self, state: State) -> str:
        """What is wrong in a state, or the empty string."""
        for purge in range(self._shape.purges):
            known = self._machine.state(state[self._shape.purge[purge] + MEMORY] - 1)
            if not known.floor:
                continue
            why = (
                self._unreachable(state, purge, known)
                or self._gone(state, purge, known)
                or self._honest(known)
                or self._overdue(state, purge, known)
            )
            if why:
                return f"{why}; purge {purge} of {state}: {known}"
        return self._lives(state)

    def step_fault(self, before: State, after: State) -> str:
        """S4 and E1: what leaves a process is what purges of it are about, and nothing else."""
        for number in range(self._shape.gateway):
            at = self._shape.member[number]
            lost = before[at + HOLDS] & ~after[at + HOLDS]
            if not lost or after[at + FRESH] or after[at + LIFE] not in RUNNING:
                continue
            about = 0
            for purge in range(self._shape.purges):
                known = self._machine.state(before[self._shape.purge[purge] + MEMORY] - 1)
                about |= self._caches.old(before[at + HOLDS], purge, known.floor)
            if lost & ~about:
                return f"S4: content of another scope was dropped: {before} -> {after}"
        return ""

    def _unreachable(self, state: State, purge: int, known: PurgeState) -> str:
        issued = self._members.issued(state)
        scope = self._caches.scopes[purge]
        for number in range(self._shape.gateway):
            at = self._shape.member[number]
            if state[at + LIFE] not in RUNNING or state[at + FRESH]:
                continue
            if self._caches.policy(state[at + KNOWS]).floors.floor_of(scope) < known.floor:
                continue
            if self._caches.reachable_old(
                state[at + HOLDS], state[at + KNOWS], issued, purge, known.floor
            ):
                return f"S1: engine {number} knows the fence and answers from before it"
        return ""

    def _gone(self, state: State, purge: int, known: PurgeState) -> str:
        if known.phase is not Phase.COMPLETED:
            return ""
        for number in range(self._shape.gateway):
            at = self._shape.member[number]
            running = state[at + LIFE] in RUNNING
            if running and self._caches.old(state[at + HOLDS], purge, known.floor):
                return f"S2: Completed, and engine {number} holds the scope"
        return ""

    def _honest(self, known: PurgeState) -> str:
        unproved = [one for one in known.members if one.standing not in PROVED]
        if known.phase is Phase.COMPLETED and (unproved or known.caveats):
            return "S3: Completed with something unshown"
        told = known.not_covered or known.caveats
        if known.phase is Phase.INCOMPLETE and known.members and not told:
            return "S3: Incomplete, and nothing is named"
        return ""

    def _overdue(self, state: State, purge: int, known: PurgeState) -> str:
        if not state[LATE] or known.phase not in ASKING:
            return ""
        number = state[self._shape.purge[purge] + MEMORY] - 1
        after = self._machine.state(self._machine.after(number, Tick(), late=1))
        if after.phase is not Phase.VERIFYING:
            return "L1: the deadline passed and the purge goes on"
        return ""

    def _lives(self, state: State) -> str:
        """Whether each purge ends, and well, when from here on whoever runs answers."""
        if state[LATE] or not self._caches.rules.raises:
            return ""
        for purge in range(self._shape.purges):
            at = self._shape.purge[purge]
            if state[at + STATUS]:
                continue
            local = self._local(state, purge)
            if local not in self._live:
                self._live[local] = self._ending(state, purge)
            if self._live[local]:
                return f"{self._live[local]}; purge {purge} of {state}"
        return ""

    def _local(self, state: State, purge: int) -> tuple[int, ...]:
        """All that a purge's way to its end depends on."""
        at = self._shape.purge[purge]
        members: list[int] = [purge, *state[:1], *state[at : at + STATUS], state[at + GONE]]
        for number in range(self._shape.members):
            place = self._shape.member[number]
            members += (state[place + LIFE], state[place + KNOWS], state[place + FRESH])
            members.append(state[place + SIGNED] >> purge & 1)
        return tuple(members)

    def _ending(self, state: State, purge: int) -> str:
        for _ in range(MOST_STEPS):
            known = self._machine.state(state[self._shape.purge[purge] + MEMORY] - 1)
            if known.phase in FINAL:
                return self._judged(known)
            best = self._best(state, purge)
            if best is None:
                if self._may_wait(state, known):
                    return ""
                return "L1: members answer and the purge does not move"
            state = best
        return "L1: members answer and the purge does not end"

    def _best(self, state: State, purge: int) -> State | None:
        """The good outcome of what the purge asks for next, or the kubelet's word; else None."""
        outcomes = [one for one in self._operator.works(state, purge) if one != state]
        fresh = [one for one in outcomes if self._moved(state, one, purge)]
        if fresh:
            return fresh[-1]
        looks = [one for one in self._operator.looks(state, purge) if one != state]
        return looks[-1] if looks else None

    def _moved(self, before: State, after: State, purge: int) -> bool:
        at = self._shape.purge[purge]
        return before[at : at + STATUS] != after[at : at + STATUS]

    def _may_wait(self, state: State, known: PurgeState) -> bool:
        """Only a member that does not answer may keep a purge waiting until its deadline."""
        waiting = known.uids(Standing.EXPECTED, Standing.FENCED)
        lives = [state[self._shape.member[int(uid)] + LIFE] for uid in waiting]
        return any(life != UP for life in lives)

    def _judged(self, known: PurgeState) -> str:
        hurt = known.caveats or any(one.standing not in PROVED for one in known.members)
        if known.phase is Phase.INCOMPLETE and not hurt:
            return "L1: everything was shown and the purge ended Incomplete"
        return ""
