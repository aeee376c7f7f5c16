"""The engine on the simulated runner: every text is what an undisturbed run gives."""

from __future__ import annotations

import random

import pytest

from fleetward_engine.errors import ConfigInvalid, RequestRefused
from fleetward_engine.model_runner import Sampled, StepInput, StepOutput
from fleetward_engine.request import SamplingParams
from tests.support.engine_core import ACME, Bench, expected_tokens, make_bench, make_request


def some_prompts(count: int, *, longest: int = 30) -> list[list[int]]:
    rng = random.Random(count)  # noqa: S311 - test data
    return [[rng.randrange(256) for _ in range(rng.randint(1, longest))] for _ in range(count)]


def check(bench: Bench, prompts: list[list[int]], count: int) -> None:
    for number, prompt in enumerate(prompts):
        assert bench.tokens(str(number)) == expected_tokens(prompt, count), number


@pytest.mark.parametrize("budget", [4, 7, 64, 1024])
@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("num_blocks", [10, 12, 200])
def test_any_chunking_pool_and_cache_gives_the_same_tokens(
    budget: int, caching: bool, num_blocks: int
) -> None:
    bench = make_bench(
        num_blocks=num_blocks,
        max_num_seqs=4,
        max_num_batched_tokens=budget,
        enable_prefix_caching=caching,
    )
    prompts = some_prompts(12)
    bench.run(*(make_request(str(i), p, max_tokens=9) for i, p in enumerate(prompts)))
    check(bench, prompts, 9)
    assert bench.engine.stats().kv_blocks_used == 0
    if num_blocks == 10:
        assert bench.engine.stats().preemptions > 0


@pytest.mark.parametrize("caching", [True, False])
def test_preempting_everyone_at_every_step_changes_no_token(caching: bool) -> None:
    bench = make_bench(enable_prefix_caching=caching)
    prompts = some_prompts(6)
    for i, prompt in enumerate(prompts):
        bench.engine.add_request(make_request(str(i), prompt, max_tokens=7))
    while bench.engine.has_work:
        bench.step()
        for i in range(len(prompts)):
            bench.engine.preempt(str(i))
            bench.engine.check_integrity()
    check(bench, prompts, 7)
    assert bench.engine.stats().preemptions >= 30


def test_a_preempted_request_keeps_its_place() -> None:
    bench = make_bench(max_num_seqs=1)
    for name in "abc":
        bench.engine.add_request(make_request(name, [1, 2, 3], max_tokens=3, cached=False))
    bench.step()
    assert bench.engine.preempt("a")
    finished = []
    while bench.engine.has_work:
        finished += [out.request_id for out in bench.step() if out.finish_reason]
    assert finished == ["a", "b", "c"]


def test_a_shared_prefix_is_computed_once_and_reported() -> None:
    bench = make_bench()
    first, second = bench.run(make_request("a", range(18))), bench.run(make_request("b", range(18)))
    assert (first[0].cached_tokens, second[0].cached_tokens) == (0, 16)
    assert bench.tokens("a") == bench.tokens("b")
    stats = bench.engine.stats()
    assert (stats.prefix_query_tokens, stats.prefix_hit_tokens) == (36, 16)


def test_the_last_prompt_token_is_always_computed() -> None:
    bench = make_bench()
    bench.run(make_request("a", range(16)))
    assert bench.run(make_request("b", range(16)))[0].cached_tokens == 12


def test_a_block_is_found_only_behind_the_same_beginning() -> None:
    bench = make_bench()
    bench.run(make_request("a", range(12)))
    later, other = make_request("b", range(4, 12)), make_request("c", [9, *range(1, 12)])
    assert [out.cached_tokens for out in bench.run(later, other)] == [0, 0]
    assert bench.run(make_request("d", range(12)))[0].cached_tokens == 8


def test_the_youngest_gives_way_even_after_an_older_one_was_preempted() -> None:
    bench = make_bench(num_blocks=6)
    for name in "ab":
        bench.engine.add_request(make_request(name, [ord(name)] * 8, max_tokens=9, cached=False))
    bench.step()
    bench.engine.preempt("a")
    finished = []
    while bench.engine.has_work:
        finished += [out.request_id for out in bench.step() if out.finish_reason]
    assert finished == ["a", "b"]
    assert bench.engine.stats().preemptions > 1


def test_generated_text_is_reused_by_the_next_turn() -> None:
    bench = make_bench()
    bench.run(make_request("a", range(6), max_tokens=11))
    prompt = [*range(6), *bench.tokens("a"), 7, 8]
    assert bench.run(make_request("b", prompt))[0].cached_tokens == 16
    assert bench.tokens("b") == expected_tokens(prompt, 4)


def test_cached_tokens_do_not_count_what_a_preempted_request_left_itself() -> None:
    bench = make_bench()
    bench.engine.add_request(make_request("a", range(20)))
    bench.step()
    bench.engine.preempt("a")
    while bench.engine.has_work:
        bench.step()
    assert bench.outputs["a"][-1].cached_tokens == 0


def test_abort_is_idempotent_at_every_stage_and_leaks_nothing() -> None:
    bench = make_bench(max_num_seqs=1)
    for name in "abc":
        bench.engine.add_request(make_request(name, range(9)))
    bench.step()
    assert bench.engine.abort_request("a")
    assert bench.engine.abort_request("c")
    assert not bench.engine.abort_request("a")
    assert not bench.engine.abort_request("never seen")
    while bench.engine.has_work:
        bench.step()
    assert not bench.engine.abort_request("b")
    assert set(bench.outputs) == {"a", "b"}
    stats = bench.engine.stats()
    assert (stats.running, stats.waiting, stats.kv_blocks_used) == (0, 0, 0)


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "words"),
    [
        ([], 1, "empty"),
        ([1] * 8000, 500, "context of 8192"),
        ([1] * 9000, 1, "context of 8192"),
        ([1] * 250, 8, "more than the KV cache's 256"),
        ([258], 1, "outside 0 to 257"),
        ([-1], 1, "outside 0 to 257"),
    ],
)
def test_impossible_requests_are_refused_at_once(
    prompt: list[int], max_tokens: int, words: str
) -> None:
    bench = make_bench()
    with pytest.raises(RequestRefused, match=words):
        bench.engine.add_request(make_request("a", prompt, max_tokens=max_tokens))
    assert not bench.engine.has_work


def test_the_largest_possible_request_is_served() -> None:
    bench = make_bench(num_blocks=4)
    prompt = list(range(10))
    bench.run(make_request("a", prompt, max_tokens=7))
    assert bench.tokens("a") == expected_tokens(prompt, 7)


def test_an_id_in_use_is_refused_and_free_again_afterwards() -> None:
    bench = make_bench()
    bench.engine.add_request(make_request("a", [1]))
    with pytest.raises(RequestRefused, match="in use"):
        bench.engine.add_request(make_request("a", [1]))
    while bench.engine.has_work:
        bench.step()
    bench.engine.add_request(make_request("a", [1]))


def test_a_stop_string_ends_the_text_before_it() -> None:
    prompt = [5, 6, 7]
    whole = bytes(expected_tokens(prompt, 30)).decode()
    stop = whole[10:13]
    bench = make_bench()
    params = SamplingParams(max_tokens=30, stop=(stop,))
    last = bench.run(make_request("a", prompt, sampling=params))[0]
    assert last.finish_reason == "stop"
    assert bench.text("a") == whole[: whole.index(stop)]


def test_stop_tokens_end_the_text_and_do_not_show() -> None:
    prompt = [5, 6, 7]
    tokens = expected_tokens(prompt, 30)
    params = SamplingParams(max_tokens=30, stop_token_ids=(tokens[9],))
    bench = make_bench()
    last = bench.run(make_request("a", prompt, sampling=params))[0]
    length = tokens.index(tokens[9])
    assert last.finish_reason == "stop"
    assert last.completion_tokens == length + 1
    assert bench.text("a") == bytes(tokens[:length]).decode()


def test_length_shows_text_that_was_held_back() -> None:
    prompt = [5, 6, 7]
    whole = bytes(expected_tokens(prompt, 8)).decode()
    params = SamplingParams(max_tokens=8, stop=(whole[-2:] + "never",))
    bench = make_bench()
    last = bench.run(make_request("a", prompt, sampling=params))[0]
    assert last.finish_reason == "length"
    assert bench.text("a") == whole


def test_logits_that_are_not_finite_fail_their_request_only_and_leave_no_cache() -> None:
    bench = make_bench(max_num_batched_tokens=64)
    healthy = bench.runner.run

    def poisoned(step: StepInput) -> StepOutput:
        ran = healthy(step)
        sampled = list(ran.sampled)
        for place, row in enumerate(step.sample_rows):
            if step.token_ids[step.row_offsets[row.row]] == 200 or row.index > 2:
                sampled[place] = Sampled(None)
        return StepOutput(sampled, ran.scored)

    bench.runner.run = poisoned  # type: ignore[method-assign]
    bad, good = bench.run(
        make_request("bad", [200] * 20), make_request("good", [100] * 20, max_tokens=3)
    )
    assert (bad.finish_reason, good.finish_reason) == ("error", "length")
    assert bad.error is not None
    assert "not finite" in bad.error
    assert bench.engine.stats().failed_logits == 1
    held = set(bench.runner._kv.reshape(-1).tolist())
    assert 201 not in held
    assert 101 in held
    bench.runner.run = healthy  # type: ignore[method-assign]
    again = bench.run(make_request("bad2", [200] * 20), make_request("good2", [100] * 20))
    assert [out.cached_tokens for out in again] == [0, 16]


def test_long_prompts_do_not_stop_running_decodes() -> None:
    bench = make_bench(max_num_batched_tokens=64, num_blocks=200)
    bench.engine.add_request(make_request("short", [1], max_tokens=20))
    bench.step()
    bench.engine.add_request(make_request("long", [2] * 400))
    for _ in range(6):
        assert "short" in {out.request_id for out in bench.step()}


def test_without_chunks_a_prompt_waits_for_a_step_of_its_own() -> None:
    settings = {"enable_chunked_prefill": False, "max_model_len": 64}
    bench = make_bench(max_num_batched_tokens=64, **settings)
    prompts = [[1] * 40, [2] * 50]
    bench.run(*(make_request(str(i), p, max_tokens=3) for i, p in enumerate(prompts)))
    check(bench, prompts, 3)
    with pytest.raises(ConfigInvalid, match="chunked prefill"):
        make_bench(max_num_batched_tokens=64, enable_chunked_prefill=False)


def test_a_context_longer_than_the_models_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="more than the model's own 8192"):
        make_bench(max_model_len=9000)


def test_progress_is_counted_from_arrival_not_from_the_last_idle_time() -> None:
    bench = make_bench()
    bench.clock.advance(1000)
    bench.engine.add_request(make_request("a", [1]))
    assert bench.engine.stats().last_progress == bench.clock.now
    bench.clock.advance(5)
    bench.step()
    assert bench.engine.stats().last_progress == bench.clock.now


def test_counters_tell_prompt_and_generated_tokens() -> None:
    bench = make_bench()
    bench.run(make_request("a", [1, 2, 3], max_tokens=5))
    stats = bench.engine.stats()
    assert (stats.prompt_tokens, stats.generation_tokens, stats.steps) == (3, 5, 5)
    assert stats.kv_blocks_total == 64
    assert stats.scope_counts[ACME].inserted == 1
