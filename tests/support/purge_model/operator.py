"""What operators do to a fleet in the model: one that leads, and writes of one that died.

An operator may die at any instant and the next one goes on from what was recorded. Its last write
may still be on the way then; preconditions let it land only where nobody has written since. That a
replica without the lease calls no member is the product's rule, not the model's to explore.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleetward_operator.core.purge.events import (
    Acked,
    AskReceipts,
    CutMade,
    Died,
    EvidenceStored,
    Fence,
    MakeCut,
    PurgeEvent,
    ReceiptVerified,
    ReleasePods,
    StoreEvidence,
    Tick,
    Vanished,
    Withdrawn,
)
from fleetward_operator.core.purge.state import FINAL, SETTLED, Member, Phase
from tests.support.purge_model.cache import Caches
from tests.support.purge_model.fleet import (
    BEFORE,
    CUTTING,
    ENDED,
    FRESH,
    GONE,
    KEPT,
    KNOWS,
    LATE,
    LIFE,
    LOST,
    MEMORY,
    OVERDUE,
    POLICY,
    STATUS,
    TROUBLES,
    UP,
    Shape,
    State,
    changed,
)
from tests.support.purge_model.machine import PHASES, Machine
from tests.support.purge_model.members import Members

ASKING = frozenset({Phase.FENCING, Phase.PURGING})


class Operator:
    """Moves of operators. `lists_first` is a fault that must be found."""

    def __init__(
        self,
        machine: Machine,
        caches: Caches,
        members: Members,
        shape: Shape,
        *,
        troubles: int,
        keeps: bool = True,
        broken: int = -1,
        lists_first: bool = False,
    ) -> None:
        self._machine = machine
        self._caches = caches
        self._members = members
        self._shape = shape
        self._troubles = troubles
        self._keeps = keeps
        self._broken = broken
        self._lists_first = lists_first

    def phase(self, state: State, purge: int) -> Phase:
        """What the leader knows a purge to be in."""
        return self._machine.state(state[self._shape.purge[purge] + MEMORY] - 1).phase

    def moves(self, state: State, purge: int) -> Iterator[State]:
        """Every next state that an operator at work on one purge can bring about."""
        at = self._shape.purge[purge]
        if state[at + STATUS]:
            return
        yield from self._deaths_of_operators(state, purge)
        phase = self.phase(state, purge)
        troubled = state[TROUBLES] < self._troubles
        if troubled and state[at + KEPT] and not state[at + GONE] and phase not in FINAL:
            yield self._withdrawn(state, purge)
            worse = (TROUBLES, state[TROUBLES] + 1)
            # Somebody deletes the record; the status still says that the purge had begun.
            lost = self._machine.lost + 1
            yield changed(state, worse, (at + KEPT, 0), (at + MEMORY, lost), (at + OVERDUE, 0))
        if state[LATE]:
            yield self._told(state, purge, Tick())
        if phase in FINAL:
            # Told, released and forgotten; killed in between, the next one finds the same.
            over = self._machine.over(state[at + MEMORY] - 1) + 1
            status = PHASES.index(phase)
            yield changed(
                state, (at + STATUS, status), (at + MEMORY, over), (at + KEPT, 0), (at + OVERDUE, 0)
            )
            return
        if phase in ASKING:
            if self._keeps and state[at + KEPT] != state[at + MEMORY]:
                yield self._kept(state, purge)
            yield from self.looks(state, purge)
        yield from self.works(state, purge)

    def works(self, state: State, purge: int) -> Iterator[State]:
        """What the purge's commands lead to, the best outcome of each last."""
        at = self._shape.purge[purge]
        for command in self._machine.commands(state[at + MEMORY] - 1):
            match command:
                case MakeCut():
                    yield from self._cuts(state, purge)
                case Fence(uids):
                    for uid in uids:
                        yield from self._fences(state, purge, int(uid))
                case AskReceipts(uids):
                    for uid in uids:
                        yield from self._asks(state, purge, int(uid))
                case ReleasePods():
                    # Whose pods may go: all members have settled.
                    pass
                case StoreEvidence():
                    kept = self._kept(state, purge)
                    yield kept
                    yield self._told(kept, purge, EvidenceStored(digest="d", names=("n",)))

    def _cuts(self, state: State, purge: int) -> Iterator[State]:
        at = self._shape.purge[purge]
        running = self._running(state)
        if self._lists_first and not state[at + BEFORE]:
            yield changed(state, (at + BEFORE, running))
            return
        if not state[at + CUTTING]:
            raised = self._caches.raised(state[POLICY], purge)
            yield changed(
                state,
                (POLICY, raised),
                (at + CUTTING, raised + 1),
                (at + BEFORE, state[at + BEFORE] | running * (not self._lists_first)),
            )
            return
        known = state[at + BEFORE]
        listed = known if self._lists_first else known | running
        floors = self._caches.policy(state[at + CUTTING] - 1).floors
        members = tuple(
            self._member(number) for number in range(self._shape.members) if listed >> number & 1
        )
        cut = CutMade(
            cut=floors.version,
            floor=floors.floor_of(self._caches.scopes[purge]),
            resource_version="1",
            members=members,
        )
        after = self._told(changed(state, (at + CUTTING, 0), (at + BEFORE, 0)), purge, cut)
        # Who existed is written before anything is asked of anyone.
        yield self._kept(after, purge)

    def _fences(self, state: State, purge: int, number: int) -> Iterator[State]:
        if state[self._shape.member[number] + LIFE] != UP:
            return
        for version in self._older_versions(state, number):
            # Late news: an ack of a bundle from before.
            yield self._told(state, purge, Acked(uid=str(number), floors_version=version))
        # That its ack is lost is as if only the service's own pass had pushed: a member's move.
        pushed = self._members.pushed(state, number, state[POLICY])
        yield self._told(pushed, purge, self._ack(pushed, number))

    def _asks(self, state: State, purge: int, number: int) -> Iterator[State]:
        if state[self._shape.member[number] + LIFE] != UP:
            return
        pushed = self._members.pushed(state, number, state[POLICY])
        memory = self._machine.state(state[self._shape.purge[purge] + MEMORY] - 1)
        asked = pushed
        if number != self._broken:
            asked = self._members.removed(pushed, number, purge, memory.floor)
        yield asked
        policy = asked[self._shape.member[number] + KNOWS]
        receipt = ReceiptVerified(
            uid=str(number),
            floor=self._caches.policy(policy).floors.floor_of(self._caches.scopes[purge]),
            receipt="r",
            binding="b",
            faults=("a probe still hits",) if number == self._broken else (),
        )
        yield self._told(asked, purge, receipt)

    def looks(self, state: State, purge: int) -> Iterator[State]:
        """The kubelet's word on members that have not settled."""
        memory = self._machine.state(state[self._shape.purge[purge] + MEMORY] - 1)
        for member in memory.members:
            life = state[self._shape.member[int(member.uid)] + LIFE]
            if member.standing in SETTLED:
                continue
            if life == ENDED:
                yield self._told(state, purge, Died(uid=member.uid, words="ended", at=""))
            if life == LOST:
                yield self._told(state, purge, Vanished(uid=member.uid, why="gone"))

    def _deaths_of_operators(self, state: State, purge: int) -> Iterator[State]:
        at = self._shape.purge[purge]
        begun = state[at + MEMORY] == self._machine.lost + 1
        again = state[at + KEPT] or (state[at + MEMORY] if begun else self._machine.first + 1)
        late = state[at + MEMORY] if self.phase(state, purge) in ASKING else 0
        troubled = state[TROUBLES] < self._troubles
        worse = (TROUBLES, state[TROUBLES] + 1)
        if state[at + CUTTING] and troubled:
            # The next one raises the floor once more.
            yield changed(state, worse, (at + CUTTING, 0), (at + BEFORE, 0))
        if not state[at + CUTTING] and again != state[at + MEMORY]:
            killed = changed(state, (at + MEMORY, again))
            yield changed(killed, (at + OVERDUE, 0))
            if late and state[at + KEPT] and troubled:
                yield changed(killed, (at + OVERDUE, late), worse)
        if state[at + OVERDUE]:
            # It lands: the next write of the leader is refused, and it reads the record again.
            landed = state[at + OVERDUE]
            yield changed(state, (at + KEPT, landed), (at + MEMORY, landed), (at + OVERDUE, 0))

    def _withdrawn(self, state: State, purge: int) -> State:
        at = self._shape.purge[purge]
        gone = changed(
            state,
            (at + GONE, 1),
            (at + MEMORY, state[at + KEPT]),
            (TROUBLES, state[TROUBLES] + 1),
        )
        return self._kept(self._told(gone, purge, Withdrawn(why="deleted")), purge)

    def _kept(self, state: State, purge: int) -> State:
        at = self._shape.purge[purge]
        return changed(state, (at + KEPT, state[at + MEMORY]), (at + OVERDUE, 0))

    def _told(self, state: State, purge: int, event: PurgeEvent) -> State:
        place = self._shape.purge[purge] + MEMORY
        after = self._machine.after(state[place] - 1, event, late=state[LATE])
        return changed(state, (place, after + 1))

    def _ack(self, state: State, number: int) -> Acked:
        known = state[self._shape.member[number] + KNOWS]
        policy = self._caches.policy(known if self._caches.rules.raises else state[POLICY])
        return Acked(uid=str(number), floors_version=policy.floors.version)

    def _older_versions(self, state: State, number: int) -> list[int]:
        at = self._shape.member[number]
        if state[at + FRESH]:
            return []
        history = self._caches.history(state[at + KNOWS])
        return [self._caches.policy(one).floors.version for one in history]

    def _running(self, state: State) -> int:
        lives = (state[self._shape.member[n] + LIFE] for n in range(self._shape.members))
        return sum(1 << number for number, life in enumerate(lives) if life == UP)

    def _member(self, number: int) -> Member:
        kind = "gateway" if number == self._shape.gateway else "engine"
        return Member(kind=kind, namespace="n", name=str(number), uid=str(number))
