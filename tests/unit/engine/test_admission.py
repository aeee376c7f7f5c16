"""Who is taken in: refused at once beyond the limits, whatever other tenants have cached."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetward_api.scope import Scope
from fleetward_engine.admission.limits import ADMIT_ALL, AdmissionLimits
from fleetward_engine.errors import AdmissionRefused, DeadlineUnreachable
from fleetward_engine.probe_tenants import PROBE_TENANTS
from fleetward_engine.request import SamplingParams
from fleetward_engine.scheduling.policy import SchedulingPolicy
from fleetward_engine.scheduling.weighted_fair import WeightedFair
from fleetward_engine.sequence import Sequence
from fleetward_engine.share_rules import ShareRules
from tests.support.engine_core import ACME, BETA, Bench, make_bench, make_request


def learn(bench: Bench, *, step_s: float = 0.1, token_s: float = 0.01) -> None:
    """Steps of this bench take no time: say what they would take."""
    bench.engine.admission.costs.observe(prefill_tokens=0, decode_rows=1, seconds=step_s)
    bench.engine.admission.costs.observe(
        prefill_tokens=100, decode_rows=0, seconds=step_s + 100 * token_s
    )


def predicted(bench: Bench, scope: Scope, prompt: list[int]) -> float:
    sequence = Sequence(make_request("asked", prompt, scope=scope), order=10**9)
    bench.engine.admission.check(sequence, bench.clock.now, is_fork=False)
    return bench.engine.admission.predicted_wait_s(sequence)


def test_beyond_the_longest_wait_one_is_refused_and_told_when_to_come_again() -> None:
    bench = make_bench(max_num_seqs=1)
    learn(bench)
    bench.engine.admission.follow(AdmissionLimits(max_predicted_wait_s=2.0))
    bench.engine.add_request(make_request("long", [1], max_tokens=41))
    bench.step()
    with pytest.raises(AdmissionRefused, match=r"about 4\.0 s, longer than the 2 s") as caught:
        bench.engine.add_request(make_request("late", [2]))
    assert caught.value.why == "predicted_wait"
    assert caught.value.retry_after_s == pytest.approx(2.0)
    assert bench.engine.stats().admission_refusals == {"predicted_wait": 1}
    for _ in range(20):
        bench.step()
    bench.engine.add_request(make_request("in time", [2]))
    bench.engine.admission.follow(ADMIT_ALL)
    bench.run(make_request("any", [3]))


def test_a_refusal_holds_until_the_next_step_for_those_who_need_no_less() -> None:
    bench = make_bench(num_blocks=16)
    learn(bench)
    bench.engine.admission.follow(AdmissionLimits(kv_headroom_percent=0))
    bench.engine.add_request(make_request("runs", [1] * 4, max_tokens=37))  # 10 blocks at its end
    bench.step()
    looks: list[Any] = []
    promised = bench.engine.admission._promised

    def looking(**facts: Any) -> Any:
        looks.append(facts)
        return promised(**facts)

    bench.engine.admission._promised = looking  # type: ignore[method-assign]

    def refused(name: str, tokens: int, **terms: Any) -> bool:
        try:
            bench.engine.add_request(make_request(name, [2] * tokens, **terms))
        except AdmissionRefused:
            return True
        return False

    assert [refused(f"{number}", 28 + number) for number in range(8)] == [True] * 8
    assert refused("again", 28)
    assert len(looks) == 1
    assert refused("other", 28, scope=BETA)
    assert refused("prior", 28, priority=1)
    assert len(looks) == 3
    assert not refused("small", 4)
    bench.step()
    assert refused("later", 28)
    assert len(looks) == 5
    assert bench.engine.stats().admission_refusals == {"kv_headroom": 12}


@pytest.mark.parametrize("leaving", ["abort", "deadline", "fence"])
def test_no_refusal_outlives_those_it_was_about(leaving: str) -> None:
    """With nobody left there is no step that runs anything, until somebody is taken in."""
    bench = make_bench(max_num_seqs=1)
    learn(bench)
    bench.engine.admission.follow(AdmissionLimits(max_predicted_wait_s=2.0))
    until = bench.clock.now + 10
    bench.engine.add_request(make_request("long", [1], max_tokens=41, deadline=until))
    bench.step()
    with pytest.raises(AdmissionRefused):
        bench.engine.add_request(make_request("late", [2]))
    match leaving:
        case "abort":
            assert bench.engine.abort_request("long")
        case "deadline":
            bench.clock.advance(10)
        case _:
            bench.engine.governance.fence(ACME, 1, "Abort")
    while bench.engine.has_work:
        bench.step()
    bench.run(make_request("again", [2]))


def test_an_idle_engine_takes_anybody_in() -> None:
    bench = make_bench()
    learn(bench, step_s=100.0)
    limits = AdmissionLimits(max_predicted_wait_s=0.001, kv_headroom_percent=99)
    bench.engine.admission.follow(limits)
    bench.run(make_request("a", [1] * 200, max_tokens=50))


def test_nobody_is_refused_for_a_wait_before_a_step_was_measured() -> None:
    bench = make_bench(max_num_seqs=1)
    bench.engine.admission.follow(AdmissionLimits(max_predicted_wait_s=0.001))
    for number in range(9):
        bench.engine.add_request(make_request(f"{number}", [1] * 20))


def test_kv_is_promised_to_the_end_of_each_answer() -> None:
    """16 blocks of 4 tokens, 25 % of them kept: 12 to promise."""
    bench = make_bench(num_blocks=16)
    learn(bench)
    bench.engine.admission.follow(AdmissionLimits(kv_headroom_percent=25))
    bench.engine.add_request(make_request("runs", [1] * 4, max_tokens=21))  # 6 blocks at its end
    bench.step()
    bench.engine.add_request(make_request("waits", [2] * 8, max_tokens=13))  # 5 at its end
    with pytest.raises(AdmissionRefused) as caught:
        bench.engine.add_request(make_request("big", [3] * 4, max_tokens=4))
    assert caught.value.why == "kv_headroom"
    # "waits" is computed in a step and gives its blocks back after 13 more.
    assert caught.value.retry_after_s == pytest.approx(1.4 + 8 * 0.01, abs=0.15)
    bench.engine.add_request(make_request("small", [3], max_tokens=4))
    while bench.engine.has_work:
        bench.step()
    assert bench.engine.stats().preemptions == 0


def test_an_answer_is_promised_what_its_tenants_answers_came_to() -> None:
    bench = make_bench(num_blocks=16)
    # A text of one token: whatever is generated ends it.
    brief = SamplingParams(max_tokens=60, stop_token_ids=tuple(range(256)))
    for number in range(8):
        bench.run(make_request(f"{number}", [number], sampling=brief))
    bench.engine.admission.follow(AdmissionLimits(kv_headroom_percent=0))
    for name in "abc":
        bench.engine.add_request(make_request(name, [1] * 4, max_tokens=60))
    with pytest.raises(AdmissionRefused):
        bench.engine.add_request(make_request("other", [1] * 4, scope=BETA, max_tokens=60))


def test_a_prefix_that_others_use_is_promised_once() -> None:
    bench = make_bench(num_blocks=16)
    bench.engine.admission.follow(AdmissionLimits(kv_headroom_percent=0))
    prompt = [1] * 40
    bench.engine.add_request(make_request("a", prompt, max_tokens=8))  # 12 blocks at its end
    bench.step()
    with pytest.raises(AdmissionRefused):
        bench.engine.add_request(make_request("other", prompt, scope=BETA, max_tokens=8))
    bench.engine.add_request(make_request("same", [*prompt, 2], max_tokens=4))


def test_choices_of_one_prompt_are_promised_their_answers() -> None:
    bench = make_bench(num_blocks=16)
    bench.engine.admission.follow(AdmissionLimits(kv_headroom_percent=0))
    bench.engine.add_request(make_request("0", [1] * 32, max_tokens=9))  # 10 blocks at its end
    bench.engine.add_request(make_request("1", [1] * 32, max_tokens=9, fork_of="0"))  # 3 more
    bench.engine.add_request(make_request("2", [1] * 32, max_tokens=9, fork_of="0"))
    with pytest.raises(AdmissionRefused):
        bench.engine.add_request(make_request("3", [1] * 32, max_tokens=9, fork_of="0"))


def test_what_is_guaranteed_to_others_is_not_promised() -> None:
    bench = make_bench(num_blocks=16)
    bench.run(make_request("known", [1], scope=BETA))
    bench.engine.governance.set_share_rules(ShareRules(max_percent=50, guaranteed_percent=50))
    bench.engine.admission.follow(AdmissionLimits(kv_headroom_percent=0))
    bench.engine.add_request(make_request("a", [1] * 20, max_tokens=5))  # 6 of its 8
    with pytest.raises(AdmissionRefused):
        bench.engine.add_request(make_request("b", [2] * 8, max_tokens=5))
    bench.engine.add_request(make_request("c", [2] * 20, scope=BETA, max_tokens=5))


def test_refusals_for_deadlines_are_counted_too() -> None:
    bench = make_bench()
    with pytest.raises(DeadlineUnreachable):
        bench.engine.add_request(make_request("a", [1], deadline=bench.clock.now))
    assert bench.engine.stats().admission_refusals == {"deadline": 1}


def test_probes_that_are_refused_are_in_nobodys_books() -> None:
    bench = make_bench()
    for tenant in PROBE_TENANTS:
        request = make_request("p", [1], scope=Scope(tenant), deadline=bench.clock.now)
        with pytest.raises(DeadlineUnreachable):
            bench.engine.add_request(request)
    assert bench.engine.stats().admission_refusals == {}


@settings(max_examples=15)
@given(
    st.integers(1, 6),
    st.integers(0, 7),
    st.sampled_from(["fcfs", "weighted-fair"]),
    # Places, and the budget of a step: chunks of a prompt, or all prompts at once.
    st.sampled_from([(1, 16), (1, 256), (2, 256), (3, 256)]),
)
def test_what_others_have_cached_makes_no_difference(
    prompt_blocks: int, steps: int, policy: str, limits: tuple[int, int]
) -> None:
    """Two engines, one of which holds the prompts of BETA's running and waiting requests."""
    places, budget = limits
    told = []
    for warm in (True, False):
        bench = make_bench(
            max_num_seqs=places, max_num_batched_tokens=budget, num_blocks=64,
            scheduling=SchedulingPolicy(policy),  # type: ignore[arg-type]
        )  # fmt: skip
        prompts = [[number] * (4 * prompt_blocks + 1) for number in range(4)]
        for number, prompt in enumerate(prompts):
            tokens = prompt if warm else [9 + number, *prompt[1:]]
            bench.run(make_request(f"warm {number}", tokens, scope=BETA))
        learn(bench)
        for number, prompt in enumerate(prompts):
            bench.engine.add_request(make_request(f"{number}", prompt, scope=BETA, max_tokens=60))
        for _ in range(steps):
            bench.step()
        bench.engine.admission.follow(AdmissionLimits(kv_headroom_percent=20))
        try:
            answer: object = predicted(bench, ACME, [1] * 30)
        except AdmissionRefused as refusal:
            answer = (refusal.why, refusal.retry_after_s)
        told.append(answer)
        assert (bench.engine.stats().prefix_hit_tokens > 0) is (warm and steps > 0)
    assert told[0] == told[1]


def test_what_the_own_scope_has_cached_shortens_the_wait() -> None:
    waits = []
    for warm in (True, False):
        bench = make_bench(max_num_seqs=1, max_num_batched_tokens=16)
        if warm:
            bench.run(make_request("warm", [1] * 41))
        learn(bench)
        bench.engine.add_request(make_request("runs", [7], max_tokens=9))
        bench.step()
        bench.engine.add_request(make_request("waits", [1] * 41))
        waits.append(predicted(bench, ACME, [3]))
    assert waits[0] < waits[1]


def test_in_fair_queueing_those_go_first_who_would_be_served_first() -> None:
    line = WeightedFair()

    def add(order: int, tenant: str, *, prompt: int, weight: int = 1) -> Sequence:
        request = make_request(
            str(order), [1] * prompt, scope=Scope(tenant), weight=weight, max_tokens=5
        )
        sequence = Sequence(request, order=order)
        line.add(sequence)
        return sequence

    first, second = add(1, "heavy", prompt=30), add(2, "heavy", prompt=30)
    own = add(3, "light", prompt=10)
    new = Sequence(make_request("new", [1], scope=Scope("light")), order=4)
    assert list(line.likely_ahead_of(new)) == [first, own]
    newcomer = Sequence(make_request("new", [1], scope=Scope("other")), order=5)
    assert list(line.likely_ahead_of(newcomer)) == []
    more = add(6, "light", prompt=50)
    assert list(line.likely_ahead_of(new)) == [first, own, more, second]
