"""Which sequences compute how many tokens in the next step.

Running sequences first, decodes before prompts, then waiting ones in the discipline's order, while
the step's token budget, the sequence limit and the pool last. A prompt longer than what is left
of the budget is computed in chunks beside others' decodes. When a running sequence needs a block
and none is left, the last one by the discipline is preempted: it gives its blocks back, keeps its
tokens and its place in line, and recomputes.

A waiting sequence that does not fit may be passed by others, but only by as many tokens as it may
come to itself; then the line waits for it. So small requests use room that a large one can't, and
a large one waits for a bounded amount of others' work beside its turn.

Nothing here depends on what another scope has cached: a hit changes how much of a sequence is
left to compute, never its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from fleetward_engine.kv_cache import KvCache
from fleetward_engine.scheduling.discipline import Discipline
from fleetward_engine.scheduling.step_budget import ScheduledSequence, SchedulerLimits, StepBudget
from fleetward_engine.sequence import Sequence

LOOKAHEAD = 32
"""How many that don't fit are looked past in one step for one that does."""

KEPT_OUT_LOOKAHEAD = 4
MOST_KEPT_OUT = 128
"""The same for those that their own tenant's limit keeps out: of one tenant, and of all."""


@dataclass(frozen=True, slots=True)
class SchedulerOutput:
    """One step: what runs, and how many were preempted, let pass, or admitted past another.

    `num_preempted` lost their blocks; `num_yielded` of them to a tenant that was behind.
    """

    scheduled: tuple[ScheduledSequence, ...]
    num_preempted: int
    num_yielded: int
    num_passed: int


@dataclass(slots=True)
class _Tally:
    preempted: int = 0
    yielded: int = 0
    passed: int = 0


class Scheduler:
    """Those who run, and those who wait under a discipline."""

    def __init__(self, limits: SchedulerLimits, kv_cache: KvCache, discipline: Discipline) -> None:
        self._limits = limits
        self._kv_cache = kv_cache
        self.waiting = discipline
        self.running: dict[Sequence, None] = {}

    def __iter__(self) -> Iterator[Sequence]:
        yield from self.running
        yield from self.waiting

    def add(self, sequence: Sequence) -> None:
        """Let a new sequence wait."""
        self.waiting.add(sequence)

    def prompt_tokens_before(self, sequence: Sequence) -> int:
        """Prompt tokens that are surely computed before a new sequence's.

        What is left of a running prompt tells what of it was cached, so it counts only for those
        who may use the same cache.
        """
        running = [
            one for one in self.running if one.shares_cache_with(sequence) and not one.is_decoding
        ]
        return sum(one.num_uncomputed for one in (*running, *self.waiting.ahead_of(sequence)))

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out of whichever queue it is in, and its blocks back."""
        if sequence in self.running:
            del self.running[sequence]
            self._kv_cache.release(sequence)
        else:
            self.waiting.remove(sequence)
            # It may have been the last who waited: nobody is then owed anything for its sake.
            self.waiting.settle(self.running)

    def preempt(self, sequence: Sequence, now: float) -> None:
        """Take a running sequence's blocks; it waits again at its own place."""
        del self.running[sequence]
        self._kv_cache.release(sequence)
        sequence.waiting_since = now
        self.waiting.add(sequence)

    def follow(self, discipline: Discipline) -> None:
        """Let those who wait stand in another line from here on."""
        for sequence in self.waiting:
            discipline.add(sequence)
        self.waiting = discipline

    def charge(self, sequence: Sequence, *, output_tokens: int) -> None:
        """Account for tokens that a sequence was given."""
        self.waiting.charge(sequence, output_tokens=output_tokens)

    def schedule(self, now: float) -> SchedulerOutput:
        """Choose the next step's work and reserve its blocks."""
        step, tally = StepBudget(self._limits), _Tally()
        by_rank = sorted(self.running, key=self.waiting.rank)
        for decodes in (True, False):
            for sequence in by_rank:
                # One that was preempted to make room is no longer here.
                if sequence.is_decoding is decodes and sequence in self.running:
                    self._continue(sequence, now, step, tally)
        self._admit(now, step, tally)
        self.waiting.settle(self.running)
        return SchedulerOutput(step.scheduled, tally.preempted, tally.yielded, tally.passed)

    def check_integrity(self) -> None:
        """Raise AssertionError when the queues contradict each other."""
        self.waiting.check_integrity()
        if any(sequence in self.running for sequence in self.waiting):
            raise AssertionError("a sequence runs and waits")
        if any(sequence.block_table for sequence in self.waiting):
            raise AssertionError("a waiting sequence holds blocks")

    def _continue(self, sequence: Sequence, now: float, step: StepBudget, tally: _Tally) -> None:
        while not self._kv_cache.can_grow(sequence):
            givers = (one for one in self.running if self._kv_cache.gives_room(one, to=sequence))
            last = max(givers, key=self.waiting.rank)
            self._preempt_in(step, last, now, tally)
            if last is sequence:
                return
        self._kv_cache.grow(sequence)
        step.take(sequence)

    def _admit(self, now: float, step: StepBudget, tally: _Tally) -> None:
        # One preempted above can't come back in this step: it needs more than it gave.
        while self._admit_next(now, step, tally):
            pass

    def _admit_next(self, now: float, step: StepBudget, tally: _Tally) -> bool:
        """Admit one, or let one give way; False when neither is left to do.

        Whoever is kept out by their own tenant's limit only holds up that tenant's others.
        """
        blocked: list[Sequence] = []
        kept_out: list[Sequence] = []
        tries: Counter[str] = Counter()
        for sequence in self.waiting:
            # However long the line of one tenant that its own limit keeps out: it hides no other.
            if tries[sequence.tenant] == KEPT_OUT_LOOKAHEAD:
                continue
            if len(blocked) == LOOKAHEAD or len(kept_out) == MOST_KEPT_OUT:
                return False
            ahead = [*blocked, *(one for one in kept_out if one.tenant == sequence.tenant)]
            if self._may_pass(sequence, ahead) and self._try_admit(sequence, now, step):
                for one in ahead:
                    one.passed_by += sequence.max_len
                tally.passed += bool(ahead)
                return True
            if self._kv_cache.is_over_share(sequence, now):
                kept_out.append(sequence)
                tries[sequence.tenant] += 1
                self.waiting.hold_off(sequence)
                continue
            if not blocked and self._yield_to(sequence, now, step, tally):
                return True
            if self._is_full or not step.left_for_prefill:
                return False
            blocked.append(sequence)
        return False

    def _yield_to(self, head: Sequence, now: float, step: StepBudget, tally: _Tally) -> bool:
        """Let one that is too far ahead of the first in line give way; False when none is."""
        if step.fits(head):
            givers = [
                one for one in self.running
                if self._is_full or self._kv_cache.gives_room(one, to=head)
            ]  # fmt: skip
            giver = self.waiting.must_yield(head, givers)
            if giver is not None:
                self._preempt_in(step, giver, now, tally)
                tally.yielded += 1
                return True
        # Blocks or a place would not help the head now: sitting out this step is enough.
        giver = self.waiting.must_yield(head, step.sequences)
        if giver is not None:
            step.give_back(giver)
        return giver is not None

    def _may_pass(self, sequence: Sequence, ahead: list[Sequence]) -> bool:
        return all(
            one.passed_by + sequence.max_len <= one.max_len and self.waiting.may_pass(sequence, one)
            for one in ahead
        )

    @property
    def _is_full(self) -> bool:
        return len(self.running) >= self._limits.max_num_seqs

    def _try_admit(self, sequence: Sequence, now: float, step: StepBudget) -> bool:
        if self._is_full or not step.fits(sequence):
            return False
        first = not sequence.was_admitted
        if not self._kv_cache.admit(sequence, now):
            return False
        self.waiting.remove(sequence)
        if first:
            self.waiting.charge(sequence, prompt_tokens=sequence.num_prompt_tokens)
        self.running[sequence] = None
        sequence.stop_waiting(now)
        sequence.passed_by = 0
        step.take(sequence)
        return True

    def _preempt_in(self, step: StepBudget, sequence: Sequence, now: float, tally: _Tally) -> None:
        step.give_back(sequence)
        self.preempt(sequence, now)
        tally.preempted += 1
