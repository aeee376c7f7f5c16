"""Which evidence has been kept for long enough; the rest of the chain can still be checked."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from fleetward_api.chain_log import ChainHead
from fleetward_api.quantity import parse_duration
from fleetward_api.resources import CachePolicySpec


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptEvidence:
    """One purge's evidence: what it follows in the chain; `stored_at` in epoch seconds."""

    purge_uid: str
    previous: ChainHead
    stored_at: float

    @property
    def sequence(self) -> int:
        """Its own number in the chain."""
        return self.previous.sequence + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Evidence that may go, oldest first. `anchor` is the last of it: what is kept begins there."""

    purge_uids: tuple[str, ...]
    anchor: ChainHead


@dataclass(slots=True)
class RetainWatch:
    """How long evidence is kept, slow to become shorter.

    A policy that is deleted and made again, as tools do, must not cost any evidence in between: so
    the longer of the last two looks counts.
    """

    _looks: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=2))

    def look(self, retain_s: float, *, now: float, apart_s: float) -> float | None:
        """Seconds to keep evidence, given what policies ask for; None after the first look.

        `now` is monotonic; a look sooner than `apart_s` after the one before is part of that one.
        """
        if not self._looks or now - self._looks[-1][0] >= apart_s:
            self._looks.append((now, retain_s))
        else:
            at, asked_s = self._looks[-1]
            self._looks[-1] = (at, max(asked_s, retain_s))
        first = len(self._looks) == 1
        return None if first else max(asked_s for _, asked_s in self._looks)

    def forget(self) -> None:
        """Nobody knows how long evidence is kept: begin anew."""
        self._looks.clear()


def longest_retain(specs: Iterable[CachePolicySpec]) -> float:
    """Seconds for which evidence is kept: the longest time that any of these policies asks for.

    A purge is the fleet's, and so is its evidence: none of the policies owns it alone.
    """
    return max(parse_duration(spec.deletion.evidence.retain) for spec in specs) / 1000


def plan_removal(
    kept: Iterable[KeptEvidence],
    *,
    head: ChainHead,
    needed: Collection[str],
    before: float,
    most: int,
) -> Removal | None:
    """The oldest evidence that was stored before a time, or None.

    Only an unbroken beginning of the chain goes, so that what is kept still follows from `anchor`
    to the head, and the last link never does.

    Args:
        kept: all evidence there is.
        head: where the chain stands.
        needed: uids of purges that have not ended, or not said so.
        before: epoch seconds.
        most: evidence of how many purges goes at once.
    """
    ordered = sorted(kept, key=lambda one: (one.sequence, one.purge_uid))
    going: list[KeptEvidence] = []
    for one in ordered[:most]:
        last = one.sequence >= head.sequence
        if last or one.purge_uid in needed or one.stored_at >= before:
            break
        going.append(one)
    # What follows names the digest of the last that goes, as it was chained.
    followed = {one.previous.sequence: one.previous for one in ordered}
    while going and going[-1].sequence not in followed:
        going.pop()
    if not going:
        return None
    uids = tuple(one.purge_uid for one in going)
    return Removal(purge_uids=uids, anchor=followed[going[-1].sequence])
