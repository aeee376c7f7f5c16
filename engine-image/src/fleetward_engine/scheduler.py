"""Which sequences compute how many tokens in the next step.

First come, first served: running sequences first, in order of arrival, then waiting ones while
the step's token budget, the sequence limit and the pool last. A prompt longer than what is left
of the budget is computed in chunks beside others' decodes. When a running sequence needs a block
and none is left, the youngest running one is preempted: it gives its blocks back, keeps its
tokens and its place before everyone who came later, and recomputes.

Nothing here depends on what another scope has cached: a hit changes how much of a sequence is
left to compute, never its place.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from fleetward_engine.kv_cache import KvCache
from fleetward_engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class ScheduledSequence:
    """Compute the sequence's next `num_tokens` tokens; `samples` when they reach its end."""

    sequence: Sequence
    num_tokens: int
    samples: bool


@dataclass(frozen=True, slots=True)
class SchedulerOutput:
    """One step: what runs, and how many sequences lost their blocks to make room."""

    scheduled: tuple[ScheduledSequence, ...]
    num_preempted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """Bounds of one step."""

    max_num_seqs: int
    max_num_batched_tokens: int
    enable_chunked_prefill: bool


class Scheduler:
    """The two queues, both in order of arrival."""

    def __init__(self, limits: SchedulerLimits, kv_cache: KvCache) -> None:
        self._limits = limits
        self._kv_cache = kv_cache
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    def __iter__(self) -> Iterator[Sequence]:
        yield from self.running
        yield from self.waiting

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence by its arrival; one that was held back until now has its old place."""
        place = len(self.waiting)
        while place and self.waiting[place - 1].order > sequence.order:
            place -= 1
        self.waiting.insert(place, sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out of whichever queue it is in, and its blocks back."""
        if sequence in self.running:
            self.running.remove(sequence)
            self._kv_cache.release(sequence)
        else:
            self.waiting.remove(sequence)

    def preempt(self, sequence: Sequence) -> None:
        """Take a running sequence's blocks; it waits again at its own place."""
        self.running.remove(sequence)
        self._kv_cache.release(sequence)
        place = sum(1 for other in self.waiting if other.order < sequence.order)
        self.waiting.insert(place, sequence)

    def schedule(self, now: float) -> SchedulerOutput:
        """Choose the next step's work and reserve its blocks."""
        budget = self._limits.max_num_batched_tokens
        scheduled: list[ScheduledSequence] = []
        preempted = 0
        position = 0
        # `running` may lose its tail, or this very sequence, while room is made.
        while position < len(self.running) and budget > 0:
            sequence = self.running[position]
            preempted += self._make_room(sequence)
            if position < len(self.running) and self.running[position] is sequence:
                budget -= self._take(sequence, budget, scheduled)
                position += 1
        # A sequence preempted above can't come back in this step: it needs more than it gave.
        self._admit(now, budget, scheduled)
        return SchedulerOutput(tuple(scheduled), preempted)

    def _admit(self, now: float, budget: int, scheduled: list[ScheduledSequence]) -> None:
        while self.waiting and budget > 0 and len(self.running) < self._limits.max_num_seqs:
            sequence = self.waiting[0]
            if not self._limits.enable_chunked_prefill and sequence.num_uncomputed > budget:
                return
            if not self._kv_cache.admit(sequence, now):
                return
            insort(self.running, self.waiting.popleft(), key=lambda running: running.order)
            budget -= self._take(sequence, budget, scheduled)

    def _make_room(self, sequence: Sequence) -> int:
        preempted = 0
        while not self._kv_cache.can_grow(sequence):
            youngest = next(
                one for one in reversed(self.running) if self._kv_cache.gives_room(one, to=sequence)
            )
            self.preempt(youngest)
            preempted += 1
            if youngest is sequence:
                return preempted
        self._kv_cache.grow(sequence)
        return preempted

    @staticmethod
    def _take(sequence: Sequence, budget: int, scheduled: list[ScheduledSequence]) -> int:
        count = min(sequence.num_uncomputed, budget)
        scheduled.append(ScheduledSequence(sequence, count, count == sequence.num_uncomputed))
        return count
