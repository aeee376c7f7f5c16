"""The tokens of one step: who gets how many, and what is left."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fleetward_engine.sequence import Sequence

PREFILL_SHARE = 4
"""Beside decodes, prompts get at most one in this many of a step's tokens."""


@dataclass(frozen=True, slots=True)
class ScheduledSequence:
    """Compute the sequence's next `num_tokens` tokens; `samples` when they reach its end."""

    sequence: Sequence
    num_tokens: int
    samples: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """Bounds of one step."""

    max_num_seqs: int
    max_num_batched_tokens: int
    enable_chunked_prefill: bool

    @property
    def prefill_beside_decodes(self) -> int:
        """Prompt tokens that all prompts of a step together get where a decode runs, at most."""
        if not self.enable_chunked_prefill:
            return self.max_num_batched_tokens
        return max(1, self.max_num_batched_tokens // PREFILL_SHARE)


class StepBudget:
    """Hands out a step's tokens.

    The long-prefill guard: a step takes about as long as it has tokens, and each decode in it
    waits that long for its next one. So once a decode is in, prompts share a quarter of the
    budget, however many wait, and inter-token latency does not depend on other people's prompts.
    Without chunked prefill a prompt can't be cut, so there is no guard.
    """

    def __init__(self, limits: SchedulerLimits) -> None:
        self._limits = limits
        self._left = limits.max_num_batched_tokens
        self._prefill_taken = 0
        self._decodes = 0
        self._scheduled: dict[Sequence, ScheduledSequence] = {}

    @property
    def scheduled(self) -> tuple[ScheduledSequence, ...]:
        """What was handed out."""
        return tuple(self._scheduled.values())

    @property
    def sequences(self) -> Collection[Sequence]:
        """Those who got any."""
        return self._scheduled.keys()

    @property
    def left_for_prefill(self) -> int:
        """Prompt tokens that may still be added."""
        if not (self._decodes and self._limits.enable_chunked_prefill):
            return self._left
        share = self._limits.prefill_beside_decodes
        return max(0, min(self._left, share - self._prefill_taken))

    def fits(self, sequence: Sequence) -> bool:
        """Whether a waiting sequence could begin now, as far as tokens go."""
        if self._limits.enable_chunked_prefill:
            return self.left_for_prefill > 0
        return sequence.num_uncomputed <= self._left

    def take(self, sequence: Sequence) -> None:
        """Give a running sequence what it needs, or what is left."""
        decode = sequence.is_decoding
        count = min(sequence.num_uncomputed, self._left if decode else self.left_for_prefill)
        if count == 0:
            return
        samples = count == sequence.num_uncomputed
        self._scheduled[sequence] = ScheduledSequence(sequence, count, samples)
        self._account(count, decode=decode)

    def give_back(self, sequence: Sequence) -> None:
        """Undo `take`: the sequence is preempted, or sits this step out."""
        item = self._scheduled.pop(sequence, None)
        if item is not None:
            self._account(-item.num_tokens, decode=sequence.is_decoding)

    def _account(self, count: int, *, decode: bool) -> None:
        self._left -= count
        if decode:
            self._decodes += count
        else:
            self._prefill_taken += count
