"""What the scheduler asks of a queue discipline."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Protocol

from fleetward_engine.sequence import Sequence


class Discipline(Protocol):
    """The line of waiting sequences, and who goes before whom.

    No answer may depend on what is cached: an order that did would tell one tenant what another
    one has asked.
    """

    def __len__(self) -> int:
        """How many wait."""

    def __iter__(self) -> Iterator[Sequence]:
        """Those who wait, first come first; not to be used after the line has changed."""

    def add(self, sequence: Sequence) -> None:
        """Let a sequence wait: a new one behind its like, a preempted one at its old place."""

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out of the line."""

    def rank(self, sequence: Sequence) -> Any:
        """A key to sort waiting or running sequences by: the smallest goes first, as of now."""

    def ahead_of(self, sequence: Sequence) -> Collection[Sequence]:
        """Those who wait and will surely go before this one, which is not in line yet."""

    def likely_ahead_of(self, sequence: Sequence) -> Iterable[Sequence]:
        """Those who wait and are expected to go before this one, as things stand, in order."""

    def charge(self, sequence: Sequence, *, prompt_tokens: int = 0, output_tokens: int = 0) -> None:
        """Account for service that a sequence was given."""

    def must_yield(self, to: Sequence, running: Collection[Sequence]) -> Sequence | None:
        """The running sequence that has to make room for this waiting one, if any has to."""

    def may_pass(self, sequence: Sequence, blocked: Sequence) -> bool:
        """Whether one that fits may go before one that is ahead of it in line and does not."""

    def hold_off(self, sequence: Sequence) -> None:
        """In this step it waits for nobody but its own tenant, whose limit keeps it out."""

    def settle(self, running: Collection[Sequence]) -> None:
        """A step's work has been chosen."""

    def check_integrity(self) -> None:
        """Raise AssertionError when the line contradicts itself."""
