"""The engine in one sentence: schedule, run, update.

Single-threaded and without a clock or thread of its own: whoever drives it calls `step` while
`has_work`. Requests enter through `add_request` and leave only in the outputs of `step`. What may
become of their cache is the business of `governance`.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf

from fleetward_engine.admission.admission import Admission
from fleetward_engine.config import EngineConfig
from fleetward_engine.counters import Counters
from fleetward_engine.errors import ConfigInvalid
from fleetward_engine.generation import Generation
from fleetward_engine.governance import Governance
from fleetward_engine.host_tier.tier import HostTier
from fleetward_engine.kv_cache import KvCache
from fleetward_engine.live_requests import LiveRequests
from fleetward_engine.model_runner import ModelRunner, Sampled, StepInput, StepOutput
from fleetward_engine.outputs import EngineStats, PublicBlocks, RequestOutput
from fleetward_engine.public_cache import PublicCache
from fleetward_engine.public_tenant import is_listed
from fleetward_engine.refusal import refuse_impossible
from fleetward_engine.request import Request
from fleetward_engine.scheduler import Scheduler
from fleetward_engine.scheduling.deadlines import Deadlines
from fleetward_engine.scheduling.policy import SchedulingPolicy, build_discipline
from fleetward_engine.scheduling.step_budget import ScheduledSequence, SchedulerLimits
from fleetward_engine.sequence import Sequence
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
            host=HostTier(
                runner,
                capacity_bytes=config.host_kv_cache_memory_bytes,
                block_tokens=runner.block_size,
                clock=clock,
                prefill_s_per_token=lambda: self.admission.costs.seconds_per_prefill_token,
            ),
        )
        limits = SchedulerLimits(
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            enable_chunked_prefill=config.enable_chunked_prefill,
        )
        self._scheduling = config.scheduling
        discipline = build_discipline(config.scheduling)
        self._scheduler = Scheduler(limits, self._kv_cache, discipline)
        self._requests = LiveRequests(self._scheduler, Deadlines())
        self._counters = Counters(last_progress=clock())
        self.admission = Admission(
            limits, scheduler=self._scheduler, requests=self._requests, kv_cache=self._kv_cache
        )
        self.admission.follow(config.admission)
        self.governance = Governance(self._kv_cache, self._requests, runner, clock)
        self.public = PublicCache(self._kv_cache, self._requests, tokenizer, clock)

    @property
    def block_bytes(self) -> int:
        """Bytes of KV that one block holds."""
        return self._runner.block_bytes

    @property
    def host_slot_bytes(self) -> int:
        """Bytes that one block takes in host memory."""
        return self._kv_cache.host.slot_bytes

    @property
    def has_work(self) -> bool:
        """Whether `step` would do anything."""
        return bool(self._requests)

    def add_request(self, request: Request) -> None:
        """Queue a request.

        Raises:
            RequestRefused: it can never be served, or its id is in use.
            DeadlineUnreachable: it would be late.
            AdmissionRefused: it would wait too long, or need KV that is promised to others.
        """
        refuse_impossible(
            request,
            max_model_len=self.max_model_len,
            max_kv_tokens=self._kv_cache.max_request_tokens,
            pool_tokens=self._runner.num_blocks * self._runner.block_size,
            vocab_size=self._runner.vocab_size,
            known_ids=self._requests.ids,
        )
        sequence = Sequence(request, order=self._counters.arrivals + 1)
        self._kv_cache.begin_public(sequence)
        is_fork = self._requests.waits_for_prompt(request)
        self.admission.check(sequence, self._clock(), is_fork=is_fork)
        if not self.has_work:
            self._counters.last_progress = self._clock()
        self._counters.arrivals += 1
        self._requests.add(Generation(sequence, self.tokenizer))

    def abort_request(self, request_id: str) -> bool:
        """Drop a request; no output follows. False if it is not (or no longer) here."""
        dropped = self._requests.drop(request_id)
        if dropped:
            self.admission.look_anew()
        self.governance.overwrite_dirty()
        return dropped

    def step(self) -> list[RequestOutput]:
        """Run one step; returns what each request gained, in no promised order."""
        now = self._clock()
        self.admission.look_anew()
        self._kv_cache.expire(now)
        self._requests.close_late(now)
        self.public.tend()
        outputs = self._requests.take_closing()
        loading = self._kv_cache.host.counters.load_seconds
        plan = self._scheduler.schedule(now)
        self._counters.preemptions += plan.num_preempted
        self._counters.yields += plan.num_yielded
        self._counters.passes += plan.num_passed
        self.governance.overwrite_dirty()
        if plan.scheduled:
            step = self._step_input(plan.scheduled)
            ready = self._clock()
            ran = self._runner.run(step)
            done = self._clock()
            loading = self._kv_cache.host.counters.load_seconds - loading
            self.admission.observe_step(plan.scheduled, done - now - loading)
            outputs += self._update(plan.scheduled, step, ran)
            self.governance.overwrite_dirty()
            self._counters.end_step(now, ready, done, self._clock())
        self._counters.last_progress = self._clock()
        return self.public.without_own(outputs)

    def preempt(self, request_id: str) -> bool:
        """Take a running request's blocks; it recomputes. False if it is not running."""
        generation = self._requests.get(request_id)
        if generation is None or generation.sequence not in self._scheduler.running:
            return False
        self._scheduler.preempt(generation.sequence, self._clock())
        self._counters.preemptions += 1
        self.governance.overwrite_dirty()
        return True

    def stats(self) -> EngineStats:
        """Counters and gauges as of now."""
        pool, index = self._kv_cache.pool, self._kv_cache.index
        return EngineStats(
            requests=len(self._requests),
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
            admission_refusals=dict(self.admission.refusals),
            kv_corruptions=self._kv_cache.canary.corruptions,
            steps=self._counters.steps,
            step_seconds=dict(self._counters.step_seconds),
            last_progress=self._counters.last_progress,
            kv_block_bytes=self.block_bytes,
            kv_blocks_max_share=pool.accounts.max_blocks,
            kv_blocks_guaranteed=pool.accounts.guaranteed_blocks,
            shares=pool.accounts.shares(),
            holdings=tuple(one for one in index.holdings() if is_listed(one.scope.tenant)),
            scope_counts={
                scope: index.counts(scope) for scope in index.scopes() if is_listed(scope.tenant)
            },
            host=self._kv_cache.host.stats(),
            public_blocks=PublicBlocks(
                reserved=self.public.plan.blocks,
                cached=self.public.num_cached,
                left_out=self.public.plan.left_out,
            ),
        )

    def set_scheduling(self, policy: SchedulingPolicy) -> None:
        """Order those who wait by another policy from the next step on; who runs goes on."""
        if policy != self._scheduling:
            self._scheduling = policy
            self._scheduler.follow(build_discipline(policy))

    def check_integrity(self) -> None:
        """Raise AssertionError when the engine's books contradict each other."""
        self._kv_cache.check_integrity(list(self._scheduler.running))
        self._requests.check_integrity()

    def _step_input(self, scheduled: SequenceOf[ScheduledSequence]) -> StepInput:
        token_ids: list[int] = []
        positions: list[int] = []
        offsets = [0]
        for item in scheduled:
            start = item.sequence.num_computed
            token_ids += item.sequence.token_ids[start : start + item.num_tokens]
            positions += range(start, start + item.num_tokens)
            offsets.append(len(token_ids))
        generations = [self._requests.of(item.sequence) for item in scheduled]
        score_rows = (
            generation.score_row(row, num_tokens=item.num_tokens)
            for row, (item, generation) in enumerate(zip(scheduled, generations, strict=True))
        )
        return StepInput(
            token_ids=token_ids,
            positions=positions,
            row_offsets=offsets,
            block_tables=[item.sequence.block_table for item in scheduled],
            sample_rows=[
                generations[row].sample_row(row)
                for row, item in enumerate(scheduled)
                if item.samples
            ],
            score_rows=[row for row in score_rows if row is not None],
        )

    def _update(
        self, scheduled: SequenceOf[ScheduledSequence], step: StepInput, ran: StepOutput
    ) -> list[RequestOutput]:
        for row, scores in zip(step.score_rows, ran.scored, strict=True):
            self._requests.of(scheduled[row.row].sequence).take_scores(scores)
        for item in scheduled:
            item.sequence.num_computed += item.num_tokens
        sampling = [item.sequence for item in scheduled if item.samples]
        now = self._clock()
        return [
            self._advance(sequence, one, now)
            for sequence, one in zip(sampling, ran.sampled, strict=True)
        ]

    def _advance(self, sequence: Sequence, sampled: Sampled, now: float) -> RequestOutput:
        generation = self._requests.of(sequence)
        if sampled.token_id is None:
            self._counters.failed_logits += 1
        else:
            self._kv_cache.commit(sequence, now)
            self._scheduler.charge(sequence, output_tokens=1)
            if is_listed(sequence.tenant):
                self._count(sequence)
        output = generation.advance(sampled)
        if output.finish_reason is not None:
            self.admission.observe_end(sequence, output.finish_reason)
            self._requests.drop(generation.request_id)
        self._requests.release_forks(generation)
        return output

    def _count(self, sequence: Sequence) -> None:
        self._counters.generation_tokens += 1
        if sequence.num_output_tokens == 0:
            self._counters.prompt_tokens += sequence.num_prompt_tokens


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
