"""Choices of one prompt: the first computes it, the others wait and then find its blocks."""

from __future__ import annotations

from collections.abc import Iterator

from fleetward_engine.sequence import Sequence


class Forks:
    """Sequences that are in no queue yet, by the request whose prompt they share.

    The prompt is computed once instead of once a choice; sharing itself is the prefix index's, so
    a fork reads nothing that any later request of its scope could not read.
    """

    def __init__(self) -> None:
        self._held: dict[str, list[Sequence]] = {}

    def __iter__(self) -> Iterator[Sequence]:
        for sequences in self._held.values():
            yield from sequences

    def hold(self, sequence: Sequence) -> None:
        """Keep a fork until its first choice is released."""
        self._held.setdefault(sequence.request.fork_of, []).append(sequence)

    def release(self, request_id: str) -> list[Sequence]:
        """Let go of all forks of a request, in the order they came."""
        return self._held.pop(request_id, [])

    def drop(self, sequence: Sequence) -> bool:
        """Forget a fork; False if it is not held here."""
        held = self._held.get(sequence.request.fork_of, [])
        if sequence not in held:
            return False
        held.remove(sequence)
        if not held:
            del self._held[sequence.request.fork_of]
        return True
