"""Queue disciplines: who goes first, who gives way, and what the scheduler makes of it."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fleetward_api.scope import Scope
from fleetward_engine.scheduling.policy import SchedulingPolicy
from fleetward_engine.scheduling.step_budget import SchedulerLimits, StepBudget
from fleetward_engine.scheduling.weighted_fair import WeightedFair
from fleetward_engine.sequence import Sequence
from tests.support.engine_core import Bench, expected_tokens, make_bench, make_request

FCFS = SchedulingPolicy()
PRIORITY = SchedulingPolicy("priority", 10.0)
FAIR = SchedulingPolicy("weighted-fair")
POLICIES = [FCFS, PRIORITY, FAIR]


def make_sequence(order: int, tenant: str = "a", *, length: int = 3, **terms: object) -> Sequence:
    request = make_request(str(order), [1] * length, scope=Scope(tenant), **terms)  # type: ignore[arg-type]
    return Sequence(request, order=order)


def finished(bench: Bench) -> list[str]:
    """Run to the end; ids in the order in which they ended."""
    ended = []
    while bench.engine.has_work:
        ended += [output.request_id for output in bench.step() if output.finish_reason]
    return ended


def test_a_policy_changes_live_and_keeps_who_waits_and_who_runs() -> None:
    bench = make_bench(max_num_seqs=1)
    for name, priority in (("a", 0), ("b", 0), ("c", 5)):
        bench.engine.add_request(make_request(name, [1], priority=priority))
    bench.step()
    bench.engine.set_scheduling(PRIORITY)
    bench.engine.check_integrity()
    assert finished(bench) == ["a", "c", "b"]


class FairRun:
    """An engine under weighted fair queueing, and what each tenant was served, counted outside."""

    def __init__(self, weights: dict[str, int], **config: object) -> None:
        self.bench = make_bench(scheduling=FAIR, **config)  # type: ignore[arg-type]
        self.weights = weights
        self.served = dict.fromkeys(weights, 0.0)
        self.largest = 0
        self.most_running = 0
        self._admitted: set[str] = set()
        self._count = 0
        self._kept_out: set[str] = set()
        cache = self.bench.engine._kv_cache
        is_over_share = cache.is_over_share

        def noted(sequence: Sequence, now: float) -> bool:
            over = is_over_share(sequence, now)
            if over:
                self._kept_out.add(sequence.tenant)
            return over

        cache.is_over_share = noted  # type: ignore[method-assign]

    def add(self, tenant: str, *, length: int, max_tokens: int) -> None:
        self._count += 1
        self.bench.engine.add_request(
            make_request(
                f"{tenant}{self._count}", [self._count % 7] * length, scope=Scope(tenant),
                max_tokens=max_tokens, weight=self.weights[tenant],
            )
        )  # fmt: skip
        self.largest = max(self.largest, length + 2 * max_tokens)

    def step(self) -> None:
        self._kept_out.clear()
        sequences = {s.request.request_id: s for s in self.bench.engine._scheduler}
        outputs = self.bench.step()
        for name, sequence in sequences.items():
            if sequence.was_admitted and name not in self._admitted:
                self._admitted.add(name)
                self._serve(sequence, sequence.num_prompt_tokens)
        for output in outputs:
            self._serve(sequences[output.request_id], 2 * len(output.new_token_ids))
        # Those too that ran in this step and came to their end in it.
        running = {one.request.request_id for one in self.bench.engine._scheduler.running}
        ran = running | {output.request_id for output in outputs}
        self.most_running = max(self.most_running, len(ran))

    def _serve(self, sequence: Sequence, tokens: int) -> None:
        self.served[sequence.tenant] += tokens / sequence.request.weight

    def waiting(self) -> set[str]:
        """Who waits for others; not who would fit but for what it holds itself."""
        line = self.bench.engine._scheduler.waiting
        return {sequence.tenant for sequence in line} - self._kept_out

    def check_virtual_times(self) -> None:
        """Who waits is behind nobody by more than the proof of `WeightedFair` says."""
        line = self.bench.engine._scheduler.waiting
        assert isinstance(line, WeightedFair)
        for waiting in self.waiting():
            for other in self.weights:
                lead = line.virtual_time(other) - line.virtual_time(waiting)
                assert lead <= self.bound(other) + 1e-6

    def bound(self, tenant: str) -> float:
        """The largest request and a step's output tokens, over the weight."""
        return (self.largest + 2 * self.most_running) / self.weights[tenant]


@pytest.mark.parametrize("chunked", [True, False])
@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    weights=st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5)),
    slots=st.integers(1, 24),
    num_blocks=st.integers(10, 120),
    spare=st.integers(0, 16),
)
@example(seed=3814, weights=(4, 1, 4), slots=10, num_blocks=10, spare=12)
def test_two_tenants_that_wait_are_served_alike_up_to_twice_the_largest_request(
    chunked: bool, seed: int, weights: tuple[int, int, int], slots: int, num_blocks: int, spare: int
) -> None:
    rng = random.Random(seed)  # noqa: S311 - test data
    run = FairRun(
        dict(zip("abc", weights, strict=True)),
        max_num_seqs=slots,
        num_blocks=num_blocks,
        max_model_len=38,
        max_num_batched_tokens=slots + spare if chunked else 40,
        enable_chunked_prefill=chunked,
    )
    shapes = {tenant: (rng.choice((1, 20)), rng.choice((2, 18))) for tenant in "abc"}
    began: dict[frozenset[str], dict[str, float]] = {}
    for step in range(90):
        for tenant in "abc":
            # Tenants come, flood and fall silent at different times.
            if rng.random() < 0.3 and (step // 30 + ord(tenant)) % 4:
                for _ in range(rng.randint(1, 8)):
                    length, count = shapes[tenant]
                    run.add(tenant, length=rng.randint(1, length), max_tokens=count)
        if not run.bench.engine.has_work:
            continue
        run.step()
        run.check_virtual_times()
        waiting = run.waiting()
        for pair in ({"a", "b"}, {"a", "c"}, {"b", "c"}):
            if not pair <= waiting:
                began.pop(frozenset(pair), None)
                continue
            start = began.setdefault(frozenset(pair), dict(run.served))
            one, other = (run.served[tenant] - start[tenant] for tenant in sorted(pair))
            assert abs(one - other) <= sum(map(run.bound, pair)) + 1e-6


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=40)
@given(seed=st.integers(0, 10_000))
def test_preempting_at_any_step_changes_no_token_under_any_policy(
    policy: SchedulingPolicy, seed: int
) -> None:
    rng = random.Random(seed)  # noqa: S311 - test data
    bench = make_bench(
        num_blocks=rng.randint(12, 40),
        max_num_seqs=rng.randint(1, 4),
        max_num_batched_tokens=rng.randint(16, 40),
        scheduling=policy,
    )
    prompts = [[rng.randrange(256) for _ in range(rng.randint(1, 30))] for _ in range(6)]
    for number, prompt in enumerate(prompts):
        bench.engine.add_request(
            make_request(
                str(number), prompt, scope=Scope(rng.choice("abc")), max_tokens=7,
                weight=rng.randint(1, 4), priority=rng.randint(-2, 2),
            )
        )  # fmt: skip
    while bench.engine.has_work:
        bench.step()
        for number in range(len(prompts)):
            # Not all each time: a prompt that is computed in chunks would never get to its end.
            if rng.random() < 0.5:
                bench.engine.preempt(str(number))
        bench.engine.check_integrity()
    for number, prompt in enumerate(prompts):
        assert bench.tokens(str(number)) == expected_tokens(prompt, 7)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), num_blocks=st.sampled_from([16, 30, 90]))
def test_what_a_tenant_has_cached_changes_nobodys_place(
    policy: SchedulingPolicy, seed: int, num_blocks: int
) -> None:
    """Step by step, the same requests gain a token with a warm cache and with a cold one.

    No two prompts are alike: blocks that running requests share are room for everyone.
    """

    def serve(*, warm: bool) -> list[list[str]]:
        rng = random.Random(seed)  # noqa: S311 - test data
        bench = make_bench(num_blocks=num_blocks, max_num_seqs=3, scheduling=policy)
        jobs = [(rng.choice("abc"), [n] * rng.randint(8, 20)) for n in range(12)]
        for tenant, prompt in jobs:
            name = f"warm {prompt[0]}"
            bench.run(make_request(name, prompt, scope=Scope(tenant), cached=warm))
        for number, (tenant, prompt) in enumerate(jobs):
            bench.engine.add_request(
                make_request(
                    str(number), prompt, scope=Scope(tenant),
                    max_tokens=rng.randint(1, 9), weight=rng.randint(1, 4),
                    priority=rng.randint(-2, 2), arrival=rng.uniform(0, 40),
                )
            )  # fmt: skip
        steps = []
        while bench.engine.has_work:
            steps.append(sorted(output.request_id for output in bench.step()))
        if num_blocks == 90:
            assert (bench.engine.stats().prefix_hit_tokens > 0) is warm
        return steps

    assert serve(warm=True) == serve(warm=False)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_preempted_request_keeps_its_place_under_any_policy(policy: SchedulingPolicy) -> None:
    bench = make_bench(max_num_seqs=1, scheduling=policy)
    for name in "abc":
        bench.engine.add_request(make_request(name, [1, 2, 3], max_tokens=3, cached=False))
    bench.step()
    assert bench.engine.preempt("a")
    assert finished(bench) == ["a", "b", "c"]


def test_small_ones_pass_one_that_does_not_fit_by_no_more_than_it_needs() -> None:
    bench = make_bench(num_blocks=18, max_num_seqs=3)
    bench.engine.add_request(make_request("first", [1] * 24, max_tokens=24, cached=False))
    bench.step()
    bench.engine.add_request(make_request("large", [2] * 48, max_tokens=4, cached=False))
    for number in range(8):
        bench.engine.add_request(make_request(str(number), [3] * 3, max_tokens=8, cached=False))
    ended = finished(bench)
    # It may come to 52 tokens, each small one to 11: four pass, the others wait behind it.
    assert set(ended[: ended.index("large")]) == {"first", *"0123"}
    assert bench.engine.stats().passes == 4
    assert bench.engine.stats().preemptions == 0


def test_beside_decodes_prompts_share_a_quarter_of_the_step() -> None:
    limits = SchedulerLimits(max_num_seqs=8, max_num_batched_tokens=64, enable_chunked_prefill=True)
    alone, beside = StepBudget(limits), StepBudget(limits)
    alone.take(make_sequence(0, length=100))
    assert [item.num_tokens for item in alone.scheduled] == [64]
    decode = make_sequence(1)
    decode.token_ids.append(7)
    decode.num_computed = 3
    beside.take(decode)
    for order in (2, 3, 4):
        beside.take(make_sequence(order, length=10))
    assert [item.num_tokens for item in beside.scheduled] == [1, 10, 6]
    beside.give_back(decode)
    assert beside.left_for_prefill == 48


def test_a_step_that_was_given_back_is_whole_again() -> None:
    limits = SchedulerLimits(max_num_seqs=8, max_num_batched_tokens=64, enable_chunked_prefill=True)
    step, sequence = StepBudget(limits), make_sequence(0, length=100)
    step.take(sequence)
    assert not step.fits(make_sequence(1))
    step.give_back(sequence)
    step.give_back(sequence)
    assert (step.scheduled, step.left_for_prefill) == ((), 64)


def test_higher_priorities_go_first_and_old_ones_are_not_forgotten() -> None:
    bench = make_bench(max_num_seqs=1, scheduling=PRIORITY)
    arrivals = {"old": (0, 0.0), "low": (0, 15.0), "high": (1, 15.0), "lowest": (-1, 15.0)}
    for name, (priority, arrival) in arrivals.items():
        bench.engine.add_request(make_request(name, [1], priority=priority, arrival=arrival))
    assert finished(bench) == ["old", "high", "low", "lowest"]
