"""Whether a new request is taken in, decided before it stands in line.

A refusal must not tell one tenant what another has cached. So a request sees others as if nothing
of theirs were cached: their prompts in whole, and their progress by the steps they were run in.
Of its own scope, which may reuse the same cache, it sees what is really left.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from fleetward_engine.admission.answer_lengths import AnswerLengths, Kind
from fleetward_engine.admission.forecast import Room, Work, load_before, load_until_released
from fleetward_engine.admission.limits import ADMIT_ALL, AdmissionLimits
from fleetward_engine.admission.promises import KvPromises
from fleetward_engine.admission.step_costs import StepCosts
from fleetward_engine.errors import AdmissionRefused, DeadlineUnreachable
from fleetward_engine.kv_cache import KvCache
from fleetward_engine.live_requests import LiveRequests
from fleetward_engine.outputs import AdmissionReason, FinishReason
from fleetward_engine.public_tenant import is_listed
from fleetward_engine.scheduler import Scheduler
from fleetward_engine.scheduling.deadlines import refuse_late
from fleetward_engine.scheduling.step_budget import ScheduledSequence, SchedulerLimits
from fleetward_engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class _Remembered:
    """A refusal that still holds, and the blocks that it was about."""

    refusal: AdmissionRefused
    blocks: int

    def again(self) -> AdmissionRefused:
        """The same refusal, for another request."""
        told = self.refusal
        return AdmissionRefused(told.message, why=told.why, retry_after_s=told.retry_after_s)


class Admission:
    """Refuses what would wait too long, take the headroom, or be late; learns from each step.

    Looking ahead costs time in proportion to the requests here, on the engine's own thread. Until
    the next step, or until a request leaves, a refusal therefore holds for all later requests of
    that scope and priority that need no less: a flood of them costs one look a step.
    """

    def __init__(
        self,
        limits: SchedulerLimits,
        *,
        scheduler: Scheduler,
        requests: LiveRequests,
        kv_cache: KvCache,
    ) -> None:
        self.limits = ADMIT_ALL
        self.costs = StepCosts()
        self.refusals: Counter[AdmissionReason] = Counter()
        self._lengths = AnswerLengths()
        self._scheduler = scheduler
        self._requests = requests
        self._kv_cache = kv_cache
        self._seqs = limits.max_num_seqs
        self._prefill_per_step = limits.prefill_beside_decodes
        self._remembered: dict[_Line, _Remembered] = {}

    def follow(self, limits: AdmissionLimits) -> None:
        """Judge requests that come from now on by other limits."""
        self.limits = limits
        self.look_anew()

    def look_anew(self) -> None:
        """Let no refusal of before hold any more: to be called whenever there may be more room.

        Not only after steps that ran something: an engine whose last request left otherwise has no
        such step until somebody is taken in.
        """
        self._remembered.clear()

    def check(self, sequence: Sequence, now: float, *, is_fork: bool) -> None:
        """Return if a new request may come in; what it is expected to take is noted in it.

        A fork waits for nothing but its first choice, so only its blocks are looked at.

        Raises:
            DeadlineUnreachable: it would be late.
            AdmissionRefused: it would wait too long, or need KV that is promised.
        """
        self._expect(sequence, now, is_fork=is_fork)
        try:
            if is_fork:
                self._refuse_without_headroom(sequence)
                return
            self._refuse_late(sequence, now)
            self._refuse_again(sequence)
            self._refuse_long_wait(sequence)
            self._refuse_without_headroom(sequence)
        except AdmissionRefused as refusal:
            self._count(sequence, refusal.why)
            if not is_fork:
                self._remember(sequence, refusal)
            raise
        except DeadlineUnreachable:
            self._count(sequence, "deadline")
            raise

    def predicted_wait_s(self, sequence: Sequence) -> float:
        """Seconds that a new request, which `check` has seen, will wait in the queue."""
        ahead = self._scheduler.waiting.likely_ahead_of(sequence)
        load = load_before(
            self._waiting_work(sequence, seen_by=sequence),
            running=self._running(seen_by=sequence),
            ahead=(self._waiting_work(one, seen_by=sequence) for one in ahead),
            room=self._room(sequence),
        )
        return self.costs.expected_s(load)

    def observe_step(self, scheduled: Iterable[ScheduledSequence], seconds: float) -> None:
        """Take note of how long a step took; to be called before its tokens are accounted for."""
        prefill_tokens = decode_rows = 0
        for one in scheduled:
            one.sequence.num_steps += 1
            if one.sequence.is_decoding:
                decode_rows += 1
            else:
                prefill_tokens += one.num_tokens
        self.costs.observe(prefill_tokens=prefill_tokens, decode_rows=decode_rows, seconds=seconds)

    def observe_end(self, sequence: Sequence, reason: FinishReason) -> None:
        """Learn from an answer that came to its end, by itself or at its limit."""
        if reason in ("stop", "length"):
            self._lengths.observe(
                _kind(sequence), sequence.num_output_tokens, reached_limit=reason == "length"
            )

    def _expect(self, sequence: Sequence, now: float, *, is_fork: bool) -> None:
        limit = sequence.request.sampling.max_tokens
        sequence.expected_output = self._lengths.left(_kind(sequence), generated=0, limit=limit)
        if is_fork:
            # Its first choice computes the prompt, all but the last token of which it will find.
            sequence.shared_blocks = (sequence.num_prompt_tokens - 1) // self._kv_cache.block_size
            sequence.cached_at_arrival = sequence.shared_blocks * self._kv_cache.block_size
        else:
            reusable = self._kv_cache.reusable(sequence, now)
            sequence.cached_at_arrival = reusable.tokens
            sequence.shared_blocks = reusable.blocks_in_use

    def _refuse_late(self, sequence: Sequence, now: float) -> None:
        if not math.isinf(sequence.deadline):
            own = sequence.num_uncomputed - sequence.cached_at_arrival
            tokens = own + self._scheduler.prompt_tokens_before(sequence)
            refuse_late(sequence, self.costs.at_least_s(tokens), now)

    def _count(self, sequence: Sequence, why: AdmissionReason) -> None:
        if is_listed(sequence.tenant):
            self.refusals[why] += 1

    def _remember(self, sequence: Sequence, refusal: AdmissionRefused) -> None:
        blocks = self._need(sequence) - sequence.shared_blocks
        known = self._remembered.get(_line(sequence))
        if known is None or blocks < known.blocks:
            self._remembered[_line(sequence)] = _Remembered(refusal, blocks)

    def _refuse_again(self, sequence: Sequence) -> None:
        known = self._remembered.get(_line(sequence))
        if known is not None and self._need(sequence) - sequence.shared_blocks >= known.blocks:
            raise known.again()

    def _refuse_long_wait(self, sequence: Sequence) -> None:
        limit = self.limits.max_predicted_wait_s
        if math.isinf(limit):
            return
        wait = self.predicted_wait_s(sequence)
        if wait > limit:
            raise AdmissionRefused(
                f"This request would wait for about {wait:.1f} s, longer than the {limit:g} s that "
                "this service lets requests wait: try again later.",
                why="predicted_wait",
                retry_after_s=wait - limit,
            )

    def _refuse_without_headroom(self, sequence: Sequence) -> None:
        percent = self.limits.kv_headroom_percent
        if percent is None:
            return
        accounts = self._kv_cache.pool.accounts
        promises = KvPromises(
            pool=self._kv_cache.pool.num_blocks,
            by_tenant=self._promised(seen_by=sequence),
            floors={account.tenant: accounts.floor_of(account) for account in accounts},
        )
        needed = self._need(sequence) - sequence.shared_blocks
        missing = promises.missing_for(sequence.tenant, needed, headroom_percent=percent)
        if missing:
            load = load_until_released(
                missing,
                running=self._running(seen_by=sequence),
                waiting=(
                    self._waiting_work(one, seen_by=sequence) for one in self._scheduler.waiting
                ),
                room=self._room(sequence),
            )
            raise AdmissionRefused(
                "The KV cache has no room for this request beside those that were promised theirs: "
                "try again later, or ask for a shorter answer (max_tokens) or fewer choices.",
                why="kv_headroom",
                retry_after_s=self.costs.expected_s(load),
            )

    def _promised(self, *, seen_by: Sequence) -> Counter[str]:
        """Blocks that each tenant's requests hold or are expected to come to."""
        promised = Counter({a.tenant: a.in_use for a in self._kv_cache.pool.accounts})
        running = self._scheduler.running
        for one in self._requests.sequences:
            if one in running:
                promised[one.tenant] += max(0, self._need(one) - len(one.block_table))
            else:
                shared = one.shared_blocks if one.shares_cache_with(seen_by) else 0
                promised[one.tenant] += self._need(one) - shared
        return promised

    def _need(self, sequence: Sequence) -> int:
        """Blocks of a request at its expected end; the last token is never computed."""
        output = max(sequence.expected_output, sequence.num_output_tokens + 1)
        return self._kv_cache.blocks_for(sequence.num_prompt_tokens + output - 1)

    def _room(self, sequence: Sequence) -> Room:
        accounts = self._kv_cache.pool.accounts
        return Room(
            seqs=self._seqs,
            prefill_per_step=self._prefill_per_step,
            free_blocks=accounts.pool_left(accounts.of(sequence.tenant)),
            tenant_blocks=accounts.max_blocks,
        )

    def _running(self, *, seen_by: Sequence) -> list[Work]:
        works = []
        for one in self._scheduler.running:
            prefill, generated = self._progress(one, seen_by=seen_by)
            works.append(
                Work(
                    tenant=one.tenant,
                    prefill_tokens=prefill,
                    output_tokens=self._output_left(one, generated),
                    blocks=len(one.block_table),
                )
            )
        return works

    def _waiting_work(self, one: Sequence, *, seen_by: Sequence) -> Work:
        known, generated = self._progress(one, seen_by=seen_by)
        left = self._output_left(one, generated)
        # On average over its life it has half of its answer.
        length = one.num_prompt_tokens + generated + left // 2
        return Work(
            tenant=one.tenant,
            prefill_tokens=known,
            output_tokens=left,
            blocks=self._kv_cache.blocks_for(length),
        )

    def _progress(self, one: Sequence, *, seen_by: Sequence) -> tuple[int, int]:
        """Tokens to compute before the next one is generated, and how many were generated."""
        running = one in self._scheduler.running
        if one.shares_cache_with(seen_by):
            cached = 0 if running else one.cached_at_arrival
            prefill = 0 if one.is_decoding else max(1, one.num_uncomputed - cached)
            return prefill, one.num_output_tokens
        prompt, steps = one.num_prompt_tokens, -(-one.num_prompt_tokens // self._prefill_per_step)
        generated = min(max(0, one.num_steps - steps), one.request.sampling.max_tokens - 1)
        if not running:
            return prompt + generated, generated
        return max(0, prompt - one.num_steps * self._prefill_per_step), generated

    def _output_left(self, one: Sequence, generated: int) -> int:
        limit = one.request.sampling.max_tokens
        return self._lengths.left(_kind(one), generated=generated, limit=limit)


_Line = tuple[str, bytes | None, int]


def _line(sequence: Sequence) -> _Line:
    """What requests have in common of which a later one goes after an earlier one."""
    return sequence.tenant, sequence.request.cache.root, sequence.request.priority


def _kind(sequence: Sequence) -> Kind:
    return sequence.tenant, sequence.request.cache.retention_class
