"""The engine in one sentence: schedule, run, update.

Single-threaded and without a clock or thread of its own: whoever drives it calls `step` while
`has_work`. Requests enter through `add_request` and leave only in the outputs of `step`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from typing import Literal

from fleetward_api.scope import Scope
from fleetward_engine.config import EngineConfig
from fleetward_engine.counters import Counters
from fleetward_engine.errors import ConfigInvalid
from fleetward_engine.forks import Forks
from fleetward_engine.generation import Generation
from fleetward_engine.kv_cache import KvCache
from fleetward_engine.model_runner import ModelRunner, Sampled, StepInput
from fleetward_engine.outputs import EngineStats, FenceResult, PurgeCounts, RequestOutput
from fleetward_engine.refusal import SHARE_LOWERED, kv_tokens_of, refuse_impossible
from fleetward_engine.request import Request
from fleetward_engine.scheduler import Scheduler
from fleetward_engine.scheduling.deadlines import Deadlines
from fleetward_engine.scheduling.policy import SchedulingPolicy, build_discipline
from fleetward_engine.scheduling.step_budget import ScheduledSequence, SchedulerLimits
from fleetward_engine.sequence import Sequence
from fleetward_engine.share_rules import ShareRules
from fleetward_engine.tokenizer import Tokenizer


class Engine:
    """Continuous batching over a paged, governed KV cache.

    Args:
        clock: monotonic seconds; TTLs and progress are measured by it.

    Raises:
        ConfigInvalid: the configuration can't work with this model.
    """

    def __init__(
        self,
        config: EngineConfig,
        runner: ModelRunner,
        tokenizer: Tokenizer,
        clock: Callable[[], float],
    ) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self.max_model_len = _max_model_len(config, runner)
        self._runner = runner
        self._clock = clock
        self._kv_cache = KvCache(
            num_blocks=runner.num_blocks,
            block_size=runner.block_size,
            enable_prefix_caching=config.enable_prefix_caching,
            fingerprints=runner.fingerprint_blocks if config.verify_kv else None,
        )
        limits = SchedulerLimits(
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            enable_chunked_prefill=config.enable_chunked_prefill,
        )
        self._scheduling = config.scheduling
        discipline = build_discipline(config.scheduling)
        self._scheduler = Scheduler(limits, self._kv_cache, discipline)
        self._forks = Forks()
        self._deadlines = Deadlines()
        self._generations: dict[str, Generation] = {}
        self._closing: list[RequestOutput] = []
        self._counters = Counters(last_progress=clock())

    @property
    def block_bytes(self) -> int:
        """Bytes of KV that one block holds."""
        return self._runner.block_bytes

    @property
    def has_work(self) -> bool:
        """Whether `step` would do anything."""
        return bool(self._generations or self._closing)

    def add_request(self, request: Request) -> None:
        """Queue a request.

        Raises:
            RequestRefused: it can never be served, or its id is in use.
            DeadlineUnreachable: it would be late.
        """
        refuse_impossible(
            request,
            max_model_len=self.max_model_len,
            max_kv_tokens=self._kv_cache.max_request_tokens,
            pool_tokens=self._runner.num_blocks * self._runner.block_size,
            vocab_size=self._runner.vocab_size,
            known_ids=self._generations.keys(),
        )
        sequence = Sequence(request, order=self._counters.arrivals + 1)
        waits_for_prompt = self._waits_for_prompt(request)
        if not waits_for_prompt:
            self._refuse_late(sequence)
        if not self.has_work:
            self._counters.last_progress = self._clock()
        self._counters.arrivals += 1
        self._deadlines.watch(sequence)
        self._generations[request.request_id] = Generation(sequence, self.tokenizer)
        if waits_for_prompt:
            self._forks.hold(sequence)
        else:
            self._scheduler.add(sequence)

    def abort_request(self, request_id: str) -> bool:
        """Drop a request; no output follows. False if it is not (or no longer) here."""
        generation = self._generations.pop(request_id, None)
        if generation is None:
            return False
        self._deadlines.forget(generation.sequence)
        if not self._forks.drop(generation.sequence):
            self._scheduler.remove(generation.sequence)
        self._release_forks(request_id)
        self._overwrite_dirty()
        return True

    def step(self) -> list[RequestOutput]:
        """Run one step; returns what each request gained, in no promised order."""
        now = self._clock()
        self._kv_cache.expire(now)
        self._end_late(now)
        outputs, self._closing = self._closing, []
        plan = self._scheduler.schedule(now)
        self._counters.preemptions += plan.num_preempted
        self._counters.yields += plan.num_yielded
        self._counters.passes += plan.num_passed
        self._overwrite_dirty()
        if plan.scheduled:
            began = self._clock()
            sampled = self._runner.run(self._step_input(plan.scheduled))
            self._deadlines.observe(plan.scheduled, self._clock() - began)
            outputs += self._update(plan.scheduled, sampled)
            self._counters.steps += 1
        self._overwrite_dirty()
        self._counters.last_progress = self._clock()
        return outputs

    def preempt(self, request_id: str) -> bool:
        """Take a running request's blocks; it recomputes. False if it is not running."""
        generation = self._generations.get(request_id)
        if generation is None or generation.sequence not in self._scheduler.running:
            return False
        self._scheduler.preempt(generation.sequence, self._clock())
        self._counters.preemptions += 1
        self._overwrite_dirty()
        return True

    def stats(self) -> EngineStats:
        """Counters and gauges as of now."""
        pool, index = self._kv_cache.pool, self._kv_cache.index
        return EngineStats(
            requests=len(self._generations) + len(self._closing),
            running=len(self._scheduler.running),
            waiting=len(self._scheduler.waiting),
            kv_blocks_total=pool.num_blocks,
            kv_blocks_used=pool.num_in_use,
            kv_block_references=pool.num_references,
            cached_blocks=len(index),
            prefix_query_tokens=self._kv_cache.query_tokens,
            prefix_hit_tokens=self._kv_cache.hit_tokens,
            prompt_tokens=self._counters.prompt_tokens,
            generation_tokens=self._counters.generation_tokens,
            preemptions=self._counters.preemptions,
            yields=self._counters.yields,
            passes=self._counters.passes,
            failed_logits=self._counters.failed_logits,
            kv_corruptions=self._kv_cache.canary.corruptions,
            steps=self._counters.steps,
            last_progress=self._counters.last_progress,
            kv_block_bytes=self.block_bytes,
            kv_blocks_max_share=pool.accounts.max_blocks,
            kv_blocks_guaranteed=pool.accounts.guaranteed_blocks,
            shares=pool.accounts.shares(),
            holdings=tuple(index.holdings()),
            scope_counts={scope: index.counts(scope) for scope in index.scopes()},
        )

    def set_scheduling(self, policy: SchedulingPolicy) -> None:
        """Order those who wait by another policy from the next step on; who runs goes on."""
        if policy != self._scheduling:
            self._scheduling = policy
            self._scheduler.follow(build_discipline(policy))

    def in_flight(self, scope: Scope, floor: int) -> int:
        """Requests here of the scope that were authorised below the floor."""
        return len(self._below(scope, floor))

    def fence(self, scope: Scope, floor: int, in_flight: Literal["Finish", "Abort"]) -> FenceResult:
        """From now on, requests of the scope from below the floor use and leave no cache.

        Those in flight finish uncached, or end with finish reason "abort" in the next `step`.
        """
        self._kv_cache.fence(scope, floor)
        affected = self._below(scope, floor)
        if in_flight == "Finish":
            return FenceResult(finishing=len(affected), aborted=0)
        for generation in affected:
            self.abort_request(generation.request_id)
            self._closing.append(generation.close("abort"))
        return FenceResult(finishing=0, aborted=len(affected))

    def purge(self, scope: Scope, floor: int, *, scrub: bool) -> PurgeCounts:
        """Remove the scope's entries from below the floor and overwrite its bytes now.

        Fences too. If `blocks_in_use` is not 0, ask again once `in_flight` is: for what was left.
        """
        purged = self._kv_cache.purge(scope, floor, scrub=scrub)
        self._overwrite_dirty()
        return PurgeCounts(
            index_entries=len(purged.keys),
            blocks=len(purged.blocks),
            bytes=len(purged.blocks) * self._runner.block_bytes,
            blocks_in_use=purged.blocks_in_use,
            counts=self._kv_cache.index.counts(scope),
            removed_keys=purged.keys,
        )

    def overwrite(self, scope: Scope, floor: int, *, limit_bytes: int) -> tuple[int, int]:
        """Overwrite some of the scope's unused blocks from below the floor, at least one.

        After a `purge` without scrub, so that overwriting much memory can be spread over steps.
        Returns the blocks and bytes overwritten now; (0, 0) when no unused one is left.
        """
        size = self.block_bytes
        blocks = self._kv_cache.scrub_idle(scope, floor, limit=max(1, limit_bytes // size))
        self._overwrite_dirty()
        return blocks, blocks * size

    def probe(self, keys: SequenceOf[bytes]) -> int:
        """How many of these keys the lookup that requests use still finds."""
        return self._kv_cache.probe(keys, self._clock())

    def recount(self, scope: Scope, floor: int) -> int:
        """Index entries of the scope from below the floor, by scanning all entries."""
        return self._kv_cache.index.recount(scope, floor)

    def residue(self, scope: Scope, floor: int) -> int:
        """Blocks that still carry bytes of the scope from below the floor, by scanning all."""
        return len(self._kv_cache.pool.owned_below(scope, floor))

    def limit_ttls(self, *, idle_ttl_ms: int | None, max_ttl_ms: int | None) -> None:
        """Shorten the TTLs of what is cached, or will be by requests that are here."""
        for sequence in (*self._scheduler, *self._forks):
            sequence.limit_ttls(idle_ttl_ms=idle_ttl_ms, max_ttl_ms=max_ttl_ms)
        self._kv_cache.limit_ttls(idle_ttl_ms=idle_ttl_ms, max_ttl_ms=max_ttl_ms)

    def set_share_rules(self, rules: ShareRules) -> None:
        """Follow other rules of sharing the pool; what is cached above a limit goes at once.

        Requests that can't fit into the new largest share any more end with an error in the next
        `step`; the others of a tenant above it are preempted when they need another block.
        """
        if rules == self._kv_cache.pool.accounts.rules:
            return
        self._kv_cache.set_share_rules(rules)
        limit = self._kv_cache.max_request_tokens
        for generation in list(self._generations.values()):
            if kv_tokens_of(generation.sequence.request) > limit:
                self.abort_request(generation.request_id)
                self._closing.append(generation.close("error", error=SHARE_LOWERED))
        self._overwrite_dirty()

    def expire(self, now: float) -> int:
        """Drop entries past their TTL and overwrite them; `step` does so too. For idle times."""
        expired = self._kv_cache.expire(now)
        self._overwrite_dirty()
        return expired

    def check_integrity(self) -> None:
        """Raise AssertionError when the engine's books contradict each other."""
        self._kv_cache.check_integrity(list(self._scheduler.running))
        if len([*self._scheduler, *self._forks]) != len(self._generations):
            raise AssertionError("a request is in no queue, or in two")
        self._scheduler.check_integrity()

    def _below(self, scope: Scope, floor: int) -> list[Generation]:
        contexts = [(each, each.sequence.request.cache) for each in self._generations.values()]
        return [each for each, cache in contexts if cache.scope == scope and cache.floor < floor]

    def _overwrite_dirty(self) -> None:
        if dirty := self._kv_cache.pool.take_dirty():
            self._runner.zero_blocks(dirty)

    def _step_input(self, scheduled: SequenceOf[ScheduledSequence]) -> StepInput:
        token_ids: list[int] = []
        positions: list[int] = []
        offsets = [0]
        for item in scheduled:
            start = item.sequence.num_computed
            token_ids += item.sequence.token_ids[start : start + item.num_tokens]
            positions += range(start, start + item.num_tokens)
            offsets.append(len(token_ids))
        return StepInput(
            token_ids=token_ids,
            positions=positions,
            row_offsets=offsets,
            block_tables=[item.sequence.block_table for item in scheduled],
            sample_rows=[
                self._generations[item.sequence.request.request_id].sample_row(row)
                for row, item in enumerate(scheduled)
                if item.samples
            ],
        )

    def _update(
        self, scheduled: SequenceOf[ScheduledSequence], sampled: SequenceOf[Sampled]
    ) -> list[RequestOutput]:
        for item in scheduled:
            item.sequence.num_computed += item.num_tokens
        sampling = [item.sequence for item in scheduled if item.samples]
        now = self._clock()
        return [
            self._advance(sequence, one, now)
            for sequence, one in zip(sampling, sampled, strict=True)
        ]

    def _advance(self, sequence: Sequence, sampled: Sampled, now: float) -> RequestOutput:
        generation = self._generations[sequence.request.request_id]
        if sampled.token_id is None:
            self._counters.failed_logits += 1
        else:
            self._kv_cache.commit(sequence, now)
            self._counters.generation_tokens += 1
            self._scheduler.charge(sequence, output_tokens=1)
            if sequence.num_output_tokens == 0:
                self._counters.prompt_tokens += sequence.num_prompt_tokens
        output = generation.advance(sampled)
        if output.finish_reason is not None:
            del self._generations[generation.request_id]
            self._deadlines.forget(sequence)
            self._scheduler.remove(sequence)
        self._release_forks(generation.request_id)
        return output

    def _refuse_late(self, sequence: Sequence) -> None:
        if not math.isinf(sequence.deadline):
            now = self._clock()
            own = sequence.num_uncomputed - self._kv_cache.cached_tokens(sequence, now)
            before = self._scheduler.prompt_tokens_before(sequence)
            self._deadlines.refuse_late(sequence, before + own, now)

    def _end_late(self, now: float) -> None:
        for sequence in self._deadlines.passed(now):
            generation = self._generations[sequence.request.request_id]
            if sequence not in self._scheduler.running:
                sequence.stop_waiting(now)
            self.abort_request(generation.request_id)
            self._closing.append(generation.close("deadline"))

    def _waits_for_prompt(self, request: Request) -> bool:
        first = self._generations.get(request.fork_of)
        shares = request.cache.root is not None and request.cache.store
        return shares and first is not None and first.sequence.num_output_tokens == 0

    def _release_forks(self, request_id: str) -> None:
        for sequence in self._forks.release(request_id):
            self._scheduler.add(sequence)


def _max_model_len(config: EngineConfig, runner: ModelRunner) -> int:
    wanted = config.max_model_len or runner.max_model_len
    if wanted > runner.max_model_len:
        raise ConfigInvalid(
            f"max_model_len {wanted} is more than the model's own {runner.max_model_len}"
        )
    if not config.enable_chunked_prefill and config.max_num_batched_tokens < wanted:
        raise ConfigInvalid(
            f"without chunked prefill max_num_batched_tokens ({config.max_num_batched_tokens}) "
            f"must be at least max_model_len ({wanted})"
        )
    return wanted
