"""Token for token what transformers computes, on tiny random models in float64."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from e2e.figures.record import record
from fleetward_engine.request import SamplingParams
from tests.support.engine_core import BETA, Bench, make_request
from tests.support.tiny_llama import (
    Shape,
    make_reference,
    make_torch_bench,
    reference_tokens,
    write_gguf,
)

SHAPES = [
    Shape(),
    Shape(layers=3, heads=6, kv_heads=2, head_dim=16, tied=False),
    Shape(layers=1, heads=2, kv_heads=2, head_dim=4, ffn=20),
    Shape(heads=4, kv_heads=1),
]
COUNT = 12
COMPARED: Counter[bool] = Counter()
"""Tokens of this run that were equal, and that were not."""


@dataclass(frozen=True)
class Case:
    """A model file, prompts that share prefixes, and the reference's answers."""

    path: Path
    prompts: list[list[int]]
    answers: list[list[int]]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Shape, Case]]:
    yield {shape: make_case(shape, tmp_path_factory.mktemp("model")) for shape in SHAPES}
    record("tiny-token-mismatches", COMPARED[False], f"of {COMPARED.total()} tokens")


def make_case(shape: Shape, folder: Path) -> Case:
    model = make_reference(shape, seed=SHAPES.index(shape))
    write_gguf(model, folder / "model.gguf")
    rng = random.Random(7)  # noqa: S311 - test data
    shared = [rng.randrange(256) for _ in range(40)]
    prompts = [
        shared[: rng.choice([0, 9, 24, 40])] + [rng.randrange(256) for _ in range(length)]
        for length in [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 50, 3, 4] * 2
    ]
    answers = [reference_tokens(model, prompt, COUNT) for prompt in prompts]
    return Case(folder / "model.gguf", prompts, answers)


def serve(bench: Bench, case: Case, *, batch: int, preempt: bool) -> None:
    params = SamplingParams(max_tokens=COUNT, temperature=0.0, ignore_eos=True)
    for start in range(0, len(case.prompts), batch):
        names = [str(number) for number in range(start, start + batch)]
        for name in names:
            prompt = case.prompts[int(name)]
            bench.engine.add_request(make_request(name, prompt, sampling=params))
        while bench.engine.has_work:
            bench.step()
            for name in names if preempt else ():
                bench.engine.preempt(name)
    answers = {str(number): answer for number, answer in enumerate(case.answers)}
    COMPARED.update(
        same == right
        for name, answer in answers.items()
        for same, right in zip(bench.tokens(name), answer, strict=True)
    )
    assert {name: bench.tokens(name) for name in answers} == answers


@pytest.mark.parametrize("caching", [True, False], ids=["cache", "no-cache"])
@pytest.mark.parametrize("batch", [1, 32])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_tokens_equal_alone_and_in_a_batch(
    cases: dict[Shape, Case], shape: Shape, batch: int, caching: bool
) -> None:
    bench = make_torch_bench(cases[shape].path, enable_prefix_caching=caching)
    serve(bench, cases[shape], batch=batch, preempt=False)
    assert (bench.engine.stats().prefix_hit_tokens > 0) == caching


@pytest.mark.parametrize("caching", [True, False], ids=["cache", "no-cache"])
@pytest.mark.parametrize("shape", SHAPES[:2], ids=str)
def test_tokens_equal_when_everyone_is_preempted_at_every_step(
    cases: dict[Shape, Case], shape: Shape, caching: bool
) -> None:
    bench = make_torch_bench(
        cases[shape].path, enable_prefix_caching=caching, max_num_batched_tokens=4096
    )
    serve(bench, cases[shape], batch=32, preempt=True)
    assert bench.engine.stats().preemptions > 300


@pytest.mark.parametrize("budget", [4, 5, 13, 64])
@pytest.mark.parametrize("shape", SHAPES[:2], ids=str)
def test_tokens_equal_for_every_chunk_size(
    cases: dict[Shape, Case], shape: Shape, budget: int
) -> None:
    bench = make_torch_bench(
        cases[shape].path, max_num_batched_tokens=budget, max_num_seqs=min(budget, 32)
    )
    serve(bench, cases[shape], batch=32, preempt=False)


def test_tokens_equal_in_a_pool_that_forces_preemption_and_eviction(
    cases: dict[Shape, Case],
) -> None:
    bench = make_torch_bench(cases[SHAPES[0]].path, num_blocks=40)
    serve(bench, cases[SHAPES[0]], batch=32, preempt=False)
    assert bench.engine.stats().preemptions > 0


def test_a_second_time_every_full_block_of_the_prompt_is_a_hit(cases: dict[Shape, Case]) -> None:
    case = cases[SHAPES[0]]
    bench = make_torch_bench(case.path, max_num_seqs=1)
    serve(bench, case, batch=32, preempt=False)
    params = SamplingParams(max_tokens=COUNT, temperature=0.0, ignore_eos=True)
    for number, prompt in enumerate(case.prompts):
        mine = make_request(f"again {number}", prompt, sampling=params)
        other = make_request(f"other {number}", prompt, sampling=params, scope=BETA, store=False)
        last_mine, last_other = bench.run(mine, other)
        assert last_mine.cached_tokens == (len(prompt) - 1) // 4 * 4
        assert last_other.cached_tokens == 0
        assert bench.tokens(f"again {number}") == case.answers[number]
        assert bench.tokens(f"other {number}") == case.answers[number]


@cache
def poisoned_model(folder: Path) -> Path:
    model = make_reference(Shape(tied=False), seed=9)
    model.get_input_embeddings().weight.data[7] = float("nan")
    write_gguf(model, folder / "poisoned.gguf")
    return folder / "poisoned.gguf"


def test_nan_fails_its_own_request_and_leaves_no_block(tmp_path: Path) -> None:
    bench = make_torch_bench(poisoned_model(tmp_path), num_blocks=30, max_num_batched_tokens=64)
    params = SamplingParams(max_tokens=COUNT, temperature=0.0, ignore_eos=True)
    good = [list(range(10, 31)), list(range(40, 46))]
    bench.run(*(make_request(f"alone {i}", p, sampling=params) for i, p in enumerate(good)))
    bad = [[7] * 20, [*range(100, 112), 7, *range(100, 112)]]
    outputs = bench.run(
        make_request("bad 0", bad[0], sampling=params),
        make_request("good 0", good[0], sampling=params, scope=BETA),
        make_request("bad 1", bad[1], sampling=params),
        make_request("good 1", good[1], sampling=params, scope=BETA),
    )
    assert [out.finish_reason for out in outputs] == ["error", "length", "error", "length"]
    for number in (0, 1):
        assert bench.tokens(f"good {number}") == bench.tokens(f"alone {number}")
    kv = bench.runner._kv._data  # type: ignore[attr-defined]
    assert bool(kv.isfinite().all())
    again = bench.run(make_request("bad again", bad[1], sampling=params))
    assert (again[0].finish_reason, again[0].cached_tokens) == ("error", 0)
