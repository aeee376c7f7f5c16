"""The state of one purge. It is kept in the CachePurge's status, so any operator can go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum


class Phase(StrEnum):
    """Phases of a purge, in order; the last two are final."""

    PENDING = "Pending"
    FENCING = "Fencing"
    PURGING = "Purging"
    VERIFYING = "Verifying"
    COMPLETED = "Completed"
    INCOMPLETE = "Incomplete"


FINAL = frozenset({Phase.COMPLETED, Phase.INCOMPLETE})


class Standing(StrEnum):
    """How far one member has come.

    Expected: it existed at the cut. Fenced: it acked floors at or above the cut. Signed: its
    receipt is verified and adds up. Faulty: its receipt is verified but doesn't add up. Dead: the
    kubelet said that its containers ended. Unproved: nobody can say what became of its memory.
    """

    EXPECTED = "Expected"
    FENCED = "Fenced"
    SIGNED = "Signed"
    FAULTY = "Faulty"
    DEAD = "Dead"
    UNPROVED = "Unproved"


SETTLED = frozenset({Standing.SIGNED, Standing.FAULTY, Standing.DEAD, Standing.UNPROVED})
PROVED = frozenset({Standing.SIGNED, Standing.DEAD})


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One process that could hold cache of the scope at the cut.

    `detail` is the sentence behind a standing that is not good news, `at` the time of a death;
    `receipt` is the signed receipt as canonical JSON, `binding` the admission it was verified
    against (JSON).
    """

    kind: str
    namespace: str
    name: str
    uid: str
    service_uid: str = ""
    standing: Standing = Standing.EXPECTED
    detail: str = ""
    at: str = ""
    receipt: str = ""
    binding: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeState:
    """Everything the protocol must remember about one purge.

    `cut` is the version of the floors that carry this purge's raised floor, `cut_version` the
    resource version of that write, `floor` the raised floor; `deadline` and `started_at` are
    wall-clock times in epoch seconds. `caveats` are doubts about the whole purge, not one member.
    """

    phase: Phase = Phase.PENDING
    cut: int = 0
    cut_version: str = ""
    floor: int = 0
    deadline: float
    started_at: float = 0.0
    caveats: tuple[str, ...] = ()
    members: tuple[Member, ...] = ()
    evidence_digest: str = ""
    evidence_names: tuple[str, ...] = ()

    def member(self, uid: str) -> Member | None:
        """The member with this pod uid, if it is one."""
        return next((one for one in self.members if one.uid == uid), None)

    def uids(self, *standings: Standing) -> tuple[str, ...]:
        """Uids of the members that stand at one of these."""
        return tuple(one.uid for one in self.members if one.standing in standings)

    def with_member(self, uid: str, change: Callable[[Member], Member]) -> PurgeState:
        """The same state with one member changed."""
        members = tuple(change(one) if one.uid == uid else one for one in self.members)
        return replace(self, members=members)

    @property
    def settled(self) -> bool:
        """Whether nothing more can be learned about any member."""
        return all(one.standing in SETTLED for one in self.members)

    @property
    def not_covered(self) -> tuple[str, ...]:
        """One sentence for each member that is not proved to have dropped the scope."""
        return tuple(
            f"{one.kind} {one.namespace}/{one.name} ({one.uid}): {one.detail}"
            for one in self.members
            if one.standing not in PROVED
        )
