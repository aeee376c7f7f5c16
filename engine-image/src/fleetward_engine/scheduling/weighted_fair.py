"""Weighted fair queueing between tenants, on the tokens they were really served.

Each tenant has a virtual time: weighted tokens served, divided by its weight. The next request is
the oldest of the waiting tenant with the smallest one (the idea of start-time fair queueing, Goyal
et al. 1996, and of virtual token counters, Sheng et al. 2024). The whole prompt is charged at the
first admission, each output token when it comes, `OUTPUT_WEIGHT` times a prompt token.

What is charged. A prompt counts in full whether or not its prefix was cached: with a discount the
order of requests, and so the waiting times that everybody sees, would tell what a tenant has
cached. Recomputing after a preemption is not charged, since it serves nobody.

No credit. Virtual times exist only while somebody waits: as long as nobody does, everyone gets all
they ask for and nobody is owed anything. A tenant that begins to wait starts at the smallest
virtual time of those who wait, so idle time is worth nothing; what it was served too much in the
same busy period stays. One that its own limit keeps out (`hold_off`) waits for nobody else: it
counts as one who does not wait, and begins to when it could be admitted again.

The bound. Let L be the largest request that waits or runs (prompt tokens + `OUTPUT_WEIGHT` x
max_tokens), i a tenant that waits, j any other, v their virtual times, w their weights. After each
admission phase `v_j - v_i <= L / w_j` or j runs nothing:
 - taking the head of the smallest v adds at most L / w_j to that v, which was at most v_i;
 - passing a blocked head is allowed only within the inequality (`may_pass`), or it would have to
   be undone at once;
 - if it does not hold and the head can't be admitted, j's sequences are preempted one by one
   (`must_yield`) until the head runs or j runs nothing. The head has the smallest v, so what holds
   for it holds for every i. A request alone always fits, so this ends.
Until the next such phase j gains at most one output token for each of its running sequences, so
`v_j - v_i <= B_j`, where B = (L + OUTPUT_WEIGHT x running) / w. That is at most 2 L / w unless more
sequences run at once than the largest request has tokens. And over any stretch of time in which
both wait, services over weights grow alike up to B_i + B_j.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator
from itertools import islice, zip_longest
from typing import Final

from fleetward_engine.sequence import Sequence

OUTPUT_WEIGHT: Final = 2
"""An output token takes a row of a step of its own, prompt tokens share one: as Sheng et al."""


def weighted_need(sequence: Sequence) -> int:
    """Weighted tokens that the request may take at most."""
    return sequence.num_prompt_tokens + OUTPUT_WEIGHT * sequence.request.sampling.max_tokens


class WeightedFair:
    """Implements `Discipline`. An admission costs time in proportion to the tenants that wait."""

    def __init__(self) -> None:
        self._lines: dict[str, list[Sequence]] = {}
        self._virtual_time: dict[str, float] = {}
        self._largest = 0
        self._held_off: set[str] = set()

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __iter__(self) -> Iterator[Sequence]:
        """Each tenant's oldest by virtual time, then each one's second, and so on."""
        if not self._lines:
            return
        # The first is all that is asked for mostly: the others are sorted only when it is passed.
        yield min((line[0] for line in self._lines.values()), key=self.rank)
        lines = sorted(self._lines.values(), key=lambda line: self.rank(line[0]))
        rounds = (one for each in zip_longest(*lines) for one in each if one is not None)
        yield from islice(rounds, 1, None)

    def add(self, sequence: Sequence) -> None:
        """Into its tenant's line, in order of arrival."""
        tenant = sequence.tenant
        if tenant not in self._lines:
            self._virtual_time[tenant] = max(self.virtual_time(tenant), self._smallest())
            self._lines[tenant] = []
        insort(self._lines[tenant], sequence, key=_by_order)
        self._largest = max(self._largest, weighted_need(sequence))

    def remove(self, sequence: Sequence) -> None:
        """Out of its tenant's line."""
        line = self._lines[sequence.tenant]
        del line[bisect_left(line, sequence.order, key=_by_order)]
        if not line:
            del self._lines[sequence.tenant]

    def virtual_time(self, tenant: str) -> float:
        """Weighted tokens served over weight in this busy period; not to be kept across steps."""
        known = self._virtual_time.get(tenant)
        return self._smallest() if known is None else known

    def rank(self, sequence: Sequence) -> tuple[float, int]:
        """The tenant's virtual time, then the order of arrival."""
        return (self.virtual_time(sequence.tenant), sequence.order)

    def ahead_of(self, sequence: Sequence) -> Collection[Sequence]:
        """Its tenant's own; how many of others go first depends on what will be served."""
        return self._lines.get(sequence.tenant, ())

    def likely_ahead_of(self, sequence: Sequence) -> list[Sequence]:
        """All that come to a smaller virtual time than its tenant does when its turn has come.

        As if each answer came to its expected length, and nobody else came.
        """
        tenant = sequence.tenant
        own = self._lines.get(tenant, [])
        begin = max(self.virtual_time(tenant), self._smallest())
        horizon = begin + sum(map(_expected_service, own))
        ahead = [(begin, one) for one in own]
        for other, line in self._lines.items():
            virtual_time = self._virtual_time[other]
            for one in line:
                if other == tenant or virtual_time >= horizon:
                    break
                ahead.append((virtual_time, one))
                virtual_time += _expected_service(one)
        return [one for _, one in sorted(ahead, key=lambda pair: (pair[0], pair[1].order))]

    def charge(self, sequence: Sequence, *, prompt_tokens: int = 0, output_tokens: int = 0) -> None:
        """Move the tenant's virtual time on, while it matters to anyone."""
        if self._virtual_time:
            now = self.virtual_time(sequence.tenant)
            served = prompt_tokens + OUTPUT_WEIGHT * output_tokens
            self._virtual_time[sequence.tenant] = now + served / sequence.request.weight

    def must_yield(self, to: Sequence, running: Collection[Sequence]) -> Sequence | None:
        """The youngest of the tenant that is furthest ahead, if it is too far ahead."""
        ahead = [one for one in running if self._lead(one, to) > self._tolerance(one)]
        return max(ahead, key=self.rank, default=None)

    def may_pass(self, sequence: Sequence, blocked: Sequence) -> bool:
        """Only where its tenant does not get too far ahead by it."""
        if sequence.tenant == blocked.tenant:
            return True
        prompt = 0 if sequence.was_admitted else sequence.num_prompt_tokens
        lead = self._lead(sequence, blocked) + prompt / sequence.request.weight
        return lead <= self._tolerance(sequence)

    def hold_off(self, sequence: Sequence) -> None:
        """Its tenant competes with nobody in this step, so nobody will owe it anything for it."""
        self._held_off.add(sequence.tenant)

    def settle(self, running: Collection[Sequence]) -> None:
        """Void what was held off; end the busy period when nobody waits any more."""
        competing = (v for tenant, v in self._waiting() if tenant not in self._held_off)
        level = min(competing, default=max(self._virtual_time.values(), default=0.0))
        for tenant in self._held_off & self._lines.keys():
            self._virtual_time[tenant] = max(self._virtual_time[tenant], level)
        self._held_off.clear()
        if not self._lines and self._virtual_time:
            self._virtual_time.clear()
            self._largest = max(map(weighted_need, running), default=0)

    def check_integrity(self) -> None:
        """Raise AssertionError when a line is empty, out of order or another tenant's."""
        for tenant, line in self._lines.items():
            orders = [sequence.order for sequence in line]
            if not line or orders != sorted(set(orders)):
                raise AssertionError(f"{tenant}'s line is empty or out of order: {orders}")
            if any(sequence.tenant != tenant for sequence in line):
                raise AssertionError(f"{tenant}'s line holds another's request")
            if tenant not in self._virtual_time:
                raise AssertionError(f"{tenant} waits without a virtual time")

    def _lead(self, sequence: Sequence, other: Sequence) -> float:
        return self.virtual_time(sequence.tenant) - self.virtual_time(other.tenant)

    def _tolerance(self, sequence: Sequence) -> float:
        return self._largest / sequence.request.weight

    def _smallest(self) -> float:
        return min((v for _, v in self._waiting()), default=0.0)

    def _waiting(self) -> Iterator[tuple[str, float]]:
        return ((tenant, self._virtual_time[tenant]) for tenant in self._lines)


def _expected_service(sequence: Sequence) -> float:
    tokens = sequence.num_prompt_tokens + OUTPUT_WEIGHT * sequence.expected_output
    return tokens / sequence.request.weight


def _by_order(sequence: Sequence) -> int:
    return sequence.order
