"""A model of a fleet under purges: every order of every event, around the real transition.

Two engines that exist before, one that may start later, two tenants with a purge each. An engine
that holds floor 0 stores, at every chance, what was authorised under floor 0 (so nothing is missed:
storing less is never worse); it obeys bundles that raise floors and never lower ones; its memory
ends with its process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from fleetward_operator.core.purge.events import (
    Acked,
    CutMade,
    Died,
    EvidenceStored,
    PurgeCommand,
    PurgeEvent,
    ReceiptVerified,
    Tick,
    Vanished,
)
from fleetward_operator.core.purge.state import (
    FINAL,
    PROVED,
    Member,
    Phase,
    PurgeState,
    Standing,
)

Advance = Callable[..., tuple[PurgeState, tuple[PurgeCommand, ...]]]
DEADLINE = 100.0
UP, ENDED, LOST, ABSENT = "up", "ended", "lost", "absent"


@dataclass(frozen=True, slots=True)
class Engine:
    """One pod. `floors` is None before its first bundle; `old` says what it holds from floor 0.

    `ended`: its containers ended and the kubelet said so. `lost`: its pod object is gone, while the
    process may go on somewhere. `broken`: a build that signs without removing.
    """

    life: str = UP
    floors: tuple[int, int] | None = (0, 0)
    old: tuple[bool, bool] = (True, True)
    broken: bool = False

    @property
    def runs(self) -> bool:
        return self.life in {UP, LOST}


@dataclass(frozen=True, slots=True)
class Fleet:
    """Everything that matters, at one instant."""

    floors: tuple[int, int]
    engines: tuple[Engine, ...]
    purges: tuple[PurgeState, ...]
    late: bool = False
    troubles: int = 0


def first_fleet(*, purges: int, newcomer: bool, broken: bool = False) -> Fleet:
    """Nothing has happened yet; the newcomer is absent."""
    engines: tuple[Engine, ...] = (Engine(), Engine(broken=broken))
    if newcomer:
        engines = (*engines, Engine(life=ABSENT, floors=None, old=(False, False)))
    return Fleet((0, 0), engines, tuple(PurgeState(deadline=DEADLINE) for _ in range(purges)))


class Explorer:
    """Visits every reachable fleet and checks what must always hold."""

    def __init__(self, advance: Advance, *, troubles: int, deadlines: bool) -> None:
        self._advance = advance
        self._deadlines = deadlines
        self._troubles = troubles
        self.visited: set[Fleet] = set()
        self.ends: set[tuple[Phase, ...]] = set()

    def explore(self, start: Fleet) -> str:
        """The first violation met, or the empty string."""
        waiting = deque([start])
        self.visited.add(start)
        while waiting:
            fleet = waiting.popleft()
            fault = self._fault(fleet)
            if fault:
                return fault
            for after in self._next(fleet):
                if after not in self.visited:
                    self.visited.add(after)
                    waiting.append(after)
        return ""

    def _next(self, fleet: Fleet) -> Iterator[Fleet]:
        for number in range(len(fleet.engines)):
            yield from self._engine_moves(fleet, number)
        for scope in range(len(fleet.purges)):
            yield from self._operator_moves(fleet, scope)
        if not fleet.late and self._deadlines:
            yield replace(fleet, late=True)

    def _engine_moves(self, fleet: Fleet, number: int) -> Iterator[Fleet]:
        engine = fleet.engines[number]
        if engine.life == ABSENT:
            yield _with(fleet, number, replace(engine, life=UP))
            return
        if engine.life == UP and fleet.troubles < self._troubles:
            worse = replace(fleet, troubles=fleet.troubles + 1)
            gone = (False, False)
            yield _with(worse, number, replace(engine, floors=None, old=gone))  # restarts
            yield _with(worse, number, replace(engine, life=ENDED, floors=None, old=gone))
            if all(state.member(str(number)) for state in fleet.purges):
                # Before a cut nobody watches over a pod whose object is removed by force: what the
                # protocol promises begins with the members that exist at the cut.
                yield _with(worse, number, replace(engine, life=LOST))
        if engine.life == UP and engine.floors is None:
            # A new process is given today's floors whether a purge runs or not.
            yield _with(fleet, number, replace(engine, floors=fleet.floors))

    def _operator_moves(self, fleet: Fleet, scope: int) -> Iterator[Fleet]:
        state = fleet.purges[scope]
        if state.phase in FINAL:
            return
        if fleet.late:
            yield self._tell(fleet, scope, Tick())
        if state.phase is Phase.PENDING:
            raised = replace(fleet, floors=_set_floor(fleet.floors, scope))
            yield self._tell(raised, scope, _cut(raised, scope))
            # Killed after the floors were written and before the members were.
            if fleet.floors[scope] < 1:
                yield raised
            return
        if state.phase is Phase.VERIFYING:
            yield self._tell(fleet, scope, EvidenceStored(digest="d", names=("n",)))
            return
        yield from self._calls(fleet, scope)
        yield from self._deaths(fleet, scope)
        # Killed: acks and receipts that were not kept are asked for again.
        reset = tuple(
            Member(kind=one.kind, namespace="n", name=one.name, uid=one.uid)
            for one in state.members
        )
        again = replace(state, phase=Phase.FENCING, members=reset)
        yield replace(fleet, purges=_put(fleet.purges, scope, again))

    def _calls(self, fleet: Fleet, scope: int) -> Iterator[Fleet]:
        state = fleet.purges[scope]
        for member in state.members:
            number = int(member.uid)
            engine = fleet.engines[number]
            if engine.life != UP:
                continue
            pushed = _with(fleet, number, replace(engine, floors=fleet.floors))
            if state.phase is Phase.FENCING and member.standing is Standing.EXPECTED:
                yield pushed  # the ack is lost
                yield self._tell(fleet, scope, Acked(uid=member.uid, floors_version=0))
                version = sum(fleet.floors)
                yield self._tell(pushed, scope, Acked(uid=member.uid, floors_version=version))
            if state.phase is Phase.PURGING and member.standing is Standing.FENCED:
                engine = pushed.engines[number]
                kept = engine.old if engine.broken else _set(engine.old, scope, value=False)
                removed = _with(pushed, number, replace(engine, old=kept))
                yield removed  # the receipt is lost
                yield self._tell(removed, scope, _receipt(removed, scope, number))

    def _deaths(self, fleet: Fleet, scope: int) -> Iterator[Fleet]:
        for member in fleet.purges[scope].members:
            life = fleet.engines[int(member.uid)].life
            if life == ENDED:
                yield self._tell(fleet, scope, Died(uid=member.uid, words="ended", at=""))
            if life == LOST:
                yield self._tell(fleet, scope, Vanished(uid=member.uid, why="gone"))

    def _tell(self, fleet: Fleet, scope: int, event: PurgeEvent) -> Fleet:
        now = DEADLINE if fleet.late else 0.0
        state, _ = self._advance(fleet.purges[scope], event, now=now)
        # Times are for people: they would only multiply the states.
        return replace(fleet, purges=_put(fleet.purges, scope, replace(state, started_at=0.0)))

    def _fault(self, fleet: Fleet) -> str:
        phases = tuple(state.phase for state in fleet.purges)
        if all(phase in FINAL for phase in phases):
            self.ends.add(phases)
        for scope, state in enumerate(fleet.purges):
            holders = [e for e in fleet.engines if e.runs and e.old[scope]]
            if state.phase is Phase.COMPLETED and holders:
                return f"S2: Completed, and {len(holders)} process(es) hold the scope: {fleet}"
            unproved = [one for one in state.members if one.standing not in PROVED]
            if state.phase is Phase.COMPLETED and unproved:
                return f"S3: Completed with unproved members: {fleet}"
            if state.phase is Phase.INCOMPLETE and not state.not_covered:
                return f"S3: Incomplete and nothing is named: {fleet}"
            if fleet.late and state.phase in {Phase.FENCING, Phase.PURGING}:
                after = self._tell(fleet, scope, Tick()).purges[scope]
                if after.phase is not Phase.VERIFYING:
                    return f"L1: the deadline passed and the purge goes on: {fleet}"
            if self._is_stuck(fleet, scope):
                return f"L1: every member answers and the purge does not complete: {fleet}"
        return ""

    def _is_stuck(self, fleet: Fleet, scope: int) -> bool:
        """Whether a purge whose members all answer from here on would not complete."""
        state = fleet.purges[scope]
        hurt = any(
            engine.life not in {UP, ABSENT} or engine.broken for engine in fleet.engines
        ) or any(one.standing is Standing.UNPROVED for one in state.members)
        if hurt or fleet.late or state.phase in FINAL:
            return False
        for _ in range(12):
            moves = list(self._good_moves(fleet, scope))
            if not moves:
                break
            fleet = moves[-1]
        return fleet.purges[scope].phase is not Phase.COMPLETED

    def _good_moves(self, fleet: Fleet, scope: int) -> Iterator[Fleet]:
        state = fleet.purges[scope]
        if state.phase is Phase.PENDING:
            raised = replace(fleet, floors=_set_floor(fleet.floors, scope))
            yield self._tell(raised, scope, _cut(raised, scope))
        elif state.phase is Phase.VERIFYING:
            yield self._tell(fleet, scope, EvidenceStored(digest="d", names=("n",)))
        elif state.phase not in FINAL:
            yield from self._calls(fleet, scope)


def _cut(fleet: Fleet, scope: int) -> CutMade:
    members = tuple(
        Member(kind="engine", namespace="n", name=str(number), uid=str(number))
        for number, engine in enumerate(fleet.engines)
        if engine.life == UP
    )
    return CutMade(
        cut=sum(fleet.floors), floor=fleet.floors[scope], resource_version="1", members=members
    )


def _receipt(fleet: Fleet, scope: int, number: int) -> ReceiptVerified:
    engine = fleet.engines[number]
    floor = 0 if engine.floors is None else engine.floors[scope]
    faults = ("a probe still hits",) if engine.broken else ()
    return ReceiptVerified(uid=str(number), floor=floor, receipt="r", binding="b", faults=faults)


def _with(fleet: Fleet, number: int, engine: Engine) -> Fleet:
    if engine.runs and engine.floors is not None:
        first, second = engine.floors
        stored = (first == 0 or engine.old[0], second == 0 or engine.old[1])
        engine = replace(engine, old=stored)
    engines = (*fleet.engines[:number], engine, *fleet.engines[number + 1 :])
    return replace(fleet, engines=engines)


def _set(old: tuple[bool, bool], scope: int, *, value: bool) -> tuple[bool, bool]:
    return (value, old[1]) if scope == 0 else (old[0], value)


def _set_floor(floors: tuple[int, int], scope: int) -> tuple[int, int]:
    return (1, floors[1]) if scope == 0 else (floors[0], 1)


def _put(purges: tuple[PurgeState, ...], scope: int, state: PurgeState) -> tuple[PurgeState, ...]:
    return tuple(state if place == scope else one for place, one in enumerate(purges))
