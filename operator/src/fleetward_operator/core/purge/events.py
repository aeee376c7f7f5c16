"""What can happen to a purge, and what it can ask for."""

from __future__ import annotations

from dataclasses import dataclass

from fleetward_operator.core.purge.state import Member


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time passed, or an operator took over; nothing else is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutMade:
    """The floor is raised and written; these members existed after that write."""

    cut: int
    floor: int
    resource_version: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acked:
    """A member acked a bundle that carries this version of the floors."""

    uid: str
    floors_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptVerified:
    """A member's receipt whose signature, scope and purge hold; `faults` are sums that don't."""

    uid: str
    floor: int
    receipt: str
    binding: str
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Died:
    """The kubelet said that every container of the pod ended."""

    uid: str
    words: str
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Vanished:
    """The pod is gone and nobody said how its containers ended."""

    uid: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceStored:
    """The evidence is written and chained."""

    digest: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """Nobody wants the purge any more: what was shown so far is all that will be."""

    why: str


PurgeEvent = Tick | CutMade | Acked | ReceiptVerified | Died | Vanished | Withdrawn | EvidenceStored


@dataclass(frozen=True, slots=True)
class MakeCut:
    """Raise the floor, write it, then record the members."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Push the current bundle to these members."""

    uids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AskReceipts:
    """Order the purge from these members; asking twice gives the same receipt."""

    uids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoreEvidence:
    """Build the evidence of this state, store it, chain it."""


@dataclass(frozen=True, slots=True)
class ReleasePods:
    """Keep the state, then take our finalizer off the member pods."""


PurgeCommand = MakeCut | Fence | AskReceipts | StoreEvidence | ReleasePods
