"""When a new request is admitted: the queue run ahead in steps, with what is expected of each.

A model of what the scheduler does, not the scheduler: a request holds its blocks from admission to
its end, prompts are computed one after the other at the prefill share of a step, and each running
answer gains a token a step. O(n log k) for n requests here, of which k run at once.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from fleetward_engine.admission.step_costs import Load


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is left of one request: prompt tokens to compute, answer tokens, and blocks it holds."""

    tenant: str
    prefill_tokens: int
    output_tokens: int
    blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What requests share.

    Attributes:
        seqs: how many run at once.
        prefill_per_step: prompt tokens that a step computes beside decodes.
        free_blocks: blocks beyond those that running requests hold.
        tenant_blocks: blocks that one tenant may hold.
    """

    seqs: int
    prefill_per_step: int
    free_blocks: int
    tenant_blocks: int


def load_before(new: Work, *, running: Iterable[Work], ahead: Iterable[Work], room: Room) -> Load:
    """What the engine does until a new request is admitted.

    `ahead` are those that wait and go first, in their order. One of another tenant that this
    tenant's own limit keeps out holds nobody up, and is passed over.
    """
    lanes = _Lanes(room)
    for work in running:
        lanes.begin(work, fresh=False)
    for work in ahead:
        if work.tenant == new.tenant or not lanes.over_share(work):
            lanes.wait_for(work)
            lanes.begin(work, fresh=True)
    lanes.wait_for(new)
    return lanes.load_until(max(lanes.clock, lanes.prefill_ends))


def load_until_released(
    blocks: int, *, running: Iterable[Work], waiting: Iterable[Work], room: Room
) -> Load:
    """What the engine does until requests that are here now have ended and left so many blocks."""
    lanes = _Lanes(room)
    for work in running:
        lanes.begin(work, fresh=False)
    for work in waiting:
        lanes.wait_for(work)
        lanes.begin(work, fresh=True)
    released, last = 0, 0.0
    for end, work in sorted(lanes.ends, key=lambda one: one[0]):
        released, last = released + work.blocks, end
        if released >= blocks:
            break
    return lanes.load_until(last)


class _Lanes:
    """Who runs when, in steps from now."""

    def __init__(self, room: Room) -> None:
        self.clock = 0.0
        self.prefill_ends = 0.0
        self.ends: list[tuple[float, Work]] = []
        self._room = room
        self._free = room.free_blocks
        self._held: Counter[str] = Counter()
        self._running: list[tuple[float, int]] = []  # the end, and the place in `ends`
        self._prefills: list[tuple[float, float]] = []

    def over_share(self, work: Work) -> bool:
        """Whether its tenant would hold more than it may."""
        return self._held[work.tenant] + work.blocks > self._room.tenant_blocks

    def wait_for(self, work: Work) -> None:
        """Let time pass until there is a lane, and room, for it."""
        while self._running and (
            len(self._running) >= self._room.seqs
            or self._free < work.blocks
            or self.over_share(work)
        ):
            end, place = heapq.heappop(self._running)
            ended = self.ends[place][1]
            self.clock = max(self.clock, end)
            self._free += ended.blocks
            self._held[ended.tenant] -= ended.blocks

    def begin(self, work: Work, *, fresh: bool) -> None:
        """Run it from now on; `fresh` when its blocks are still among the free ones."""
        begin = computed = self.clock
        if work.prefill_tokens:
            begin = max(begin, self.prefill_ends)
            computed = begin + work.prefill_tokens / self._room.prefill_per_step
            self.prefill_ends = computed
        self._prefills.append((begin, computed))
        end = computed + work.output_tokens
        heapq.heappush(self._running, (end, len(self.ends)))
        self.ends.append((end, work))
        self._held[work.tenant] += work.blocks
        if fresh:
            self._free -= work.blocks

    def load_until(self, steps: float) -> Load:
        """What runs until then."""
        prefill_steps = decode_rows = 0.0
        for (begin, computed), (end, _) in zip(self._prefills, self.ends, strict=True):
            prefill_steps += max(0.0, min(computed, steps) - begin)
            decode_rows += max(0.0, min(end, steps) - computed)
        return Load(
            steps=steps,
            prefill_tokens=prefill_steps * self._room.prefill_per_step,
            decode_rows=decode_rows,
        )
