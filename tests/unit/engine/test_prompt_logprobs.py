"""How likely a prompt was: each token is told once, however it came to be computed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_engine.errors import RequestRefused
from fleetward_engine.request import SamplingParams
from tests.support.engine_core import Bench, expected_tokens, make_bench, make_request

PROMPT = [3 + number for number in range(41)]
PARAMS = SamplingParams(max_tokens=3, logprobs=0, prompt_logprobs=1)


def told(bench: Bench, name: str) -> list[int]:
    """The prompt's tokens that were told of, over all outputs."""
    outputs = bench.outputs[name]
    return [one.token_id for output in outputs for one in output.prompt_logprobs]


def run(bench: Bench, names: Sequence[str], *, preempt_at: int = 0) -> None:
    for name in names:
        bench.engine.add_request(make_request(name, PROMPT, sampling=PARAMS))
    steps = 0
    while bench.engine.has_work:
        bench.step()
        steps += 1
        if steps == preempt_at:
            bench.engine.preempt(names[0])


@given(budget=st.integers(4, 64), preempt_at=st.integers(0, 12), others=st.integers(0, 2))
def test_all_but_the_first_token_are_told_with_the_first_output(
    budget: int, preempt_at: int, others: int
) -> None:
    bench = make_bench(max_num_batched_tokens=budget, max_num_seqs=4)
    names = [str(number) for number in range(others + 1)]
    run(bench, names, preempt_at=preempt_at)
    for name in names:
        assert told(bench, name) == PROMPT[1:]
        assert bench.outputs[name][0].prompt_logprobs
        assert bench.tokens(name) == expected_tokens(PROMPT, 3)


def test_a_cached_prompt_is_computed_again_and_then_found_by_others() -> None:
    bench = make_bench()
    bench.run(make_request("plain", PROMPT))
    run(bench, ["told"])
    assert bench.outputs["told"][-1].cached_tokens == 0
    assert told(bench, "told") == PROMPT[1:]
    assert bench.run(make_request("later", PROMPT))[0].cached_tokens == 40


def test_a_fork_waits_for_nobody_where_it_could_find_nothing() -> None:
    bench = make_bench()
    first = make_request("first", PROMPT, sampling=PARAMS)
    second = make_request("second", PROMPT, sampling=PARAMS, choice=1, fork_of="first")
    bench.run(first, second)
    assert told(bench, "first") == told(bench, "second") == PROMPT[1:]


def test_nothing_is_told_unless_asked_for_and_of_one_token_nothing_can_be() -> None:
    bench = make_bench()
    bench.run(make_request("plain", PROMPT))
    bench.run(make_request("one", [5], sampling=PARAMS))
    assert told(bench, "plain") == told(bench, "one") == []


def test_too_many_are_refused() -> None:
    with pytest.raises(RequestRefused, match="logprobs"):
        SamplingParams(max_tokens=1, prompt_logprobs=21)
