"""The state of the model: flat tuples of small numbers, so that millions can be remembered."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

State = tuple[int, ...]

UP, ENDED, LOST, ABSENT = range(4)
RUNNING = (UP, LOST)

POLICY, LATE, TROUBLES, SHARED = range(4)
"""Fields of the fleet: floors and epoch by number; whether the clock shows a time past all
deadlines; troubles so far."""

LIFE, KNOWS, FRESH, HOLDS, SIGNED, PER_MEMBER = range(6)
"""Fields of a member: its life; the policy in force, or today's when its process began (`FRESH`:
it has none yet); the content it holds; for which purges it keeps a receipt (bits)."""

MEMORY, KEPT, CUTTING, BEFORE, STATUS, GONE, OVERDUE, PER_PURGE = range(8)
"""Fields of a purge: the leader's state and the recorded one (one above its number; 0: none); the
policy of a floor just raised (likewise), and who ran before that (bits); the phase told in the
status; whether its CachePurge was deleted; a record that a dead leader's last write may still
bring (likewise)."""


class Shape:
    """Which members and purges there are, and where their fields begin.

    The last member is the gateway; newcomers stand between it and the engines.
    """

    def __init__(self, *, engines: int, newcomers: int, purges: int) -> None:
        self.members = engines + newcomers + 1
        self.gateway = self.members - 1
        self.purges = purges
        self.member = tuple(SHARED + number * PER_MEMBER for number in range(self.members))
        after = SHARED + self.members * PER_MEMBER
        self.purge = tuple(after + number * PER_PURGE for number in range(purges))


def changed(state: State, *changes: tuple[int, int]) -> State:
    """The state with fields set, as (place, value)."""
    fields = list(state)
    for place, value in changes:
        fields[place] = value
    return tuple(fields)


def pack(state: Sequence[int]) -> bytes:
    """A state in four bytes a field; equal states are equal bytes."""
    return array("I", state).tobytes()


def unpack(data: bytes) -> State:
    """What `pack` made."""
    fields = array("I")
    fields.frombytes(data)
    return tuple(fields)
