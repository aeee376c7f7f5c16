"""When somebody keeps changing what we own: how soon it is put back, and how often that is told.

The first few reverts come at once. From then on each waits twice as long as the one before, up to
a limit that keeps every revert within the promised time. After a quiet while it starts over.
"""

from __future__ import annotations

from dataclasses import dataclass

AT_ONCE = 5
LONGEST_WAIT_S = 20.0
QUIET_S = 300.0
TELL_EVERY_S = 60.0
_MANY = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Reverts of one child without a quiet while between them; times are monotonic seconds."""

    reverts: int = 0
    last_at: float = 0.0
    told_at: float = 0.0

    @property
    def begins(self) -> bool:
        """Whether the latest revert made it a contest."""
        return self.reverts == AT_ONCE + 1


def wait_before_revert(contest: Contest, *, now: float) -> float:
    """Seconds until the next revert may be sent; 0 when it may now."""
    if contest.reverts < AT_ONCE:
        return 0.0
    delay = min(LONGEST_WAIT_S, 2.0 ** min(contest.reverts - AT_ONCE, _MANY))
    return min(LONGEST_WAIT_S, max(0.0, contest.last_at + delay - now))


def may_tell(contest: Contest, *, now: float) -> bool:
    """Whether the next revert gets an Event of its own."""
    return _resumed(contest, now).reverts < AT_ONCE or now - contest.told_at >= TELL_EVERY_S


def add_revert(contest: Contest, *, now: float) -> Contest:
    """The contest after one more revert, told if it might be."""
    told_at = now if may_tell(contest, now=now) else contest.told_at
    before = _resumed(contest, now)
    return Contest(reverts=before.reverts + 1, last_at=now, told_at=told_at)


def _resumed(contest: Contest, now: float) -> Contest:
    quiet = now - contest.last_at >= QUIET_S
    return Contest(told_at=contest.told_at) if quiet else contest
