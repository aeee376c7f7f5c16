"""Choosing tokens: distributions, filters, penalties, and independence of the batch."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fleetward_engine.model_runner import SampleRow
from fleetward_engine.random_numbers import uniform
from fleetward_engine.request import SamplingParams
from fleetward_engine.sampler import choose, penalise, sample

VOCABULARY = 1500
"""Not a power of two, and longer than the head that filters look at first."""
NUMBERS = st.floats(0, 1, exclude_max=True)


def make_row(params: SamplingParams, *, row: int = 0, **options: object) -> SampleRow:
    values: dict[str, object] = {
        "seed": 1,
        "choice": 0,
        "index": 0,
        "prompt_token_ids": (),
        "output_token_ids": (),
        "banned_token_ids": frozenset(),
    }
    return SampleRow(row=row, params=params, **{**values, **options})  # type: ignore[arg-type]


def make_logits(rows: int, *, scale: float = 3.0) -> Tensor:
    return torch.randn(rows, VOCABULARY) * scale


def kept_by(logits: Tensor, params: SamplingParams) -> set[int]:
    """The tokens that may be drawn, straight from the definition of each filter."""
    probs = (logits.double() / params.temperature).softmax(-1)
    order = probs.argsort(descending=True, stable=True).tolist()
    if params.top_k:
        order = order[: params.top_k]
    mass = sum(float(probs[i]) for i in order)
    kept: set[int] = set()
    before = 0.0
    for token in order:
        if before >= params.top_p * mass and kept:
            break
        if float(probs[token]) >= params.min_p * float(probs[order[0]]):
            kept.add(token)
        before += float(probs[token])
    return kept


FILTERS = [
    {"top_p": 0.3},
    {"top_p": 0.9},
    {"top_k": 1},
    {"top_k": 7},
    {"top_k": 50, "top_p": 0.8},
    {"min_p": 0.05},
    {"min_p": 0.2, "top_p": 0.7},
    {"top_p": 0.95, "temperature": 2.0},
]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@given(number=NUMBERS)
def test_only_tokens_that_pass_the_filters_are_drawn(
    filters: dict[str, float], number: float
) -> None:
    params = SamplingParams(max_tokens=1, **filters)  # type: ignore[arg-type]
    logits = torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(3)) * 4
    assert choose(logits, params, number) in kept_by(logits, params)


@pytest.mark.parametrize("scale", [0.0, 0.01], ids=["flat", "nearly flat"])
def test_top_p_over_a_flat_distribution_looks_beyond_the_head(scale: float) -> None:
    params = SamplingParams(max_tokens=1, top_p=0.999)
    logits = torch.randn(VOCABULARY) * scale
    drawn = {choose(logits, params, place / 4000) for place in range(4000)}
    assert len(drawn) > 1400


@pytest.mark.parametrize(
    "filters",
    [{}, {"top_p": 0.8}, {"top_k": 5}, {"temperature": 0.5}, {"temperature": 2}],
    ids=str,
)
def test_drawn_tokens_follow_the_distribution(filters: dict[str, float]) -> None:
    """Chi-square over evenly spaced and over counter-based numbers, 16 tokens."""
    params = SamplingParams(max_tokens=1, **filters)  # type: ignore[arg-type]
    logits = torch.tensor([math.log(1 + i) for i in range(15)] + [-math.inf])
    kept = sorted(kept_by(logits, params))
    probs = (logits.double() / params.temperature).softmax(-1)[kept]
    expected = dict(zip(kept, (probs / probs.sum()).tolist(), strict=True))
    draws = 4000
    counts = Counter(
        choose(logits, params, uniform(seed=5, choice=0, index=i)) for i in range(draws)
    )
    assert set(counts) <= {token for token, share in expected.items() if share > 0}
    chi2 = sum(
        (counts[token] - draws * share) ** 2 / (draws * share)
        for token, share in expected.items()
        if share > 0
    )
    # 99.99th percentile of chi-square with 14 degrees of freedom, an upper bound for fewer.
    assert chi2 < 42.6


@given(number=NUMBERS)
def test_impossible_tokens_are_never_drawn(number: float) -> None:
    logits = torch.full((20,), -math.inf)
    logits[[3, 11]] = 0.0
    assert choose(logits, SamplingParams(max_tokens=1), number) in {3, 11}


def test_a_row_is_decided_as_if_it_were_alone() -> None:
    logits = make_logits(8)
    params = [SamplingParams(max_tokens=1, temperature=t) for t in (0.0, 0.5, 1.0, 1.5)] * 2
    rows = [make_row(p, row=i, seed=i) for i, p in enumerate(params)]
    together = sample(logits, rows)
    alone = [sample(logits[i : i + 1], [row])[0] for i, row in enumerate(rows)]
    assert together == alone


def test_seed_choice_and_place_each_change_the_draw_and_nothing_else_does() -> None:
    logits = make_logits(1, scale=0.1)
    params = SamplingParams(max_tokens=1)

    def draw(**counter: int) -> int | None:
        return sample(logits, [make_row(params, **counter)])[0].token_id

    base = draw(seed=1, choice=0, index=0)
    assert base == draw(seed=1, choice=0, index=0)
    assert len({base, draw(seed=2), draw(choice=1), draw(index=1)}) == 4


def test_greedy_takes_the_first_of_the_likeliest() -> None:
    logits = torch.zeros(2, 10)
    logits[0, 4] = logits[1, 9] = 2.0
    greedy = SamplingParams(max_tokens=1, temperature=0.0)
    assert [s.token_id for s in sample(logits, [make_row(greedy), make_row(greedy)])] == [4, 9]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_rows_that_are_not_finite_get_no_token_and_spare_the_others(bad: float) -> None:
    logits = make_logits(3)
    alone = sample(logits[2:], [make_row(SamplingParams(max_tokens=1))])
    logits[1, 700] = bad
    params = [SamplingParams(max_tokens=1, temperature=t) for t in (0.0, 0.7, 1.0)]
    results = sample(logits, [make_row(p, row=i) for i, p in enumerate(params)])
    assert results[1].token_id is None
    assert results[0].token_id == int(logits[0].argmax())
    assert results[2:] == alone


def test_a_row_of_minus_infinity_gets_no_token() -> None:
    logits = torch.full((1, 10), -math.inf)
    assert sample(logits, [make_row(SamplingParams(max_tokens=1))])[0].token_id is None


def test_penalties_follow_their_definitions() -> None:
    logits = torch.tensor([2.0, -2.0, 1.0, 0.5])
    params = SamplingParams(
        max_tokens=1, presence_penalty=0.5, frequency_penalty=0.25, repetition_penalty=2.0
    )
    row = make_row(params, prompt_token_ids=(1,), output_token_ids=(0, 0, 2))
    got = penalise(logits, row)
    assert got.tolist() == pytest.approx([1.0 - 0.5 - 0.5, -4.0, 0.5 - 0.5 - 0.25, 0.5])
    assert logits.tolist() == [2.0, -2.0, 1.0, 0.5]


def test_a_bias_is_added_to_the_logit_and_changes_no_logprob() -> None:
    logits = make_logits(2)
    plain = logits[0].log_softmax(-1)
    params = SamplingParams(
        max_tokens=1, temperature=0.0, logprobs=0, logit_bias=((7, 100.0), (8, -100.0))
    )
    biased, free = sample(logits, [make_row(params), make_row(SamplingParams(max_tokens=1))])
    assert biased.token_id == 7
    assert biased.logprobs is not None
    assert biased.logprobs.logprob == pytest.approx(float(plain[7]))
    assert free == sample(logits[1:], [make_row(SamplingParams(max_tokens=1))])[0]
    assert penalise(logits[0], make_row(params))[8] == pytest.approx(float(logits[0, 8]) - 100)


def test_only_what_a_grammar_allows_is_drawn_whatever_else_is_asked() -> None:
    logits = make_logits(1)
    allowed = [3, 700, 1400]
    mask = bytearray(-(-VOCABULARY // 8))
    for token in allowed:
        mask[token // 8] |= 1 << token % 8
    for options in ({}, {"temperature": 0.0}, {"top_p": 0.5}, {"logit_bias": ((9, 100.0),)}):
        params = SamplingParams(max_tokens=1, logprobs=0, **options)
        row = make_row(params, allowed=bytes(mask))
        assert sample(logits, [row])[0].token_id in allowed
    # A model may have more logits than its tokenizer has tokens.
    short = make_row(SamplingParams(max_tokens=1, temperature=0.0), allowed=bytes(mask[:2]))
    assert sample(logits, [short])[0].token_id == 3
    logits[0, allowed] = -math.inf
    blocked = make_row(SamplingParams(max_tokens=1), allowed=bytes(mask))
    assert sample(logits, [blocked])[0].token_id is None


def test_banned_tokens_are_not_chosen_even_when_likeliest() -> None:
    logits = torch.zeros(1, 5)
    logits[0, 2] = 50.0
    for temperature in (0.0, 1.0):
        params = SamplingParams(max_tokens=9, min_tokens=5, temperature=temperature)
        row = make_row(params, banned_token_ids=frozenset({2}))
        assert sample(logits, [row])[0].token_id != 2


def test_logprobs_are_the_models_own_before_penalties_and_temperature() -> None:
    logits = make_logits(1)
    expected = logits[0].log_softmax(-1)
    params = SamplingParams(max_tokens=1, temperature=0.3, logprobs=3, presence_penalty=1.0)
    result = sample(logits, [make_row(params, output_token_ids=(1, 2))])[0]
    assert result.logprobs is not None
    assert result.token_id == result.logprobs.token_id
    assert result.logprobs.logprob == pytest.approx(float(expected[result.logprobs.token_id]))
    best = expected.topk(3)
    assert [token for token, _ in result.logprobs.top] == best.indices.tolist()
    assert [p for _, p in result.logprobs.top] == pytest.approx(best.values.tolist())
    none = SamplingParams(max_tokens=1, temperature=0.0, logprobs=0)
    bare = sample(logits, [make_row(none)])[0].logprobs
    assert bare is not None
    assert bare.top == ()


@pytest.mark.parametrize("temperature", [5e-324, 1e-310, 1e-38, 1e-6])
@pytest.mark.parametrize("filters", [{}, {"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.1}])
def test_the_coldest_temperatures_take_the_likeliest(
    temperature: float, filters: dict[str, float]
) -> None:
    logits = make_logits(1)
    params = SamplingParams(max_tokens=1, temperature=temperature, **filters)  # type: ignore[arg-type]
    assert choose(logits[0], params, 0.5) == int(logits.argmax())


def test_the_smallest_repetition_penalty_rewards_what_was_seen() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0, -1.0]])
    params = SamplingParams(max_tokens=1, repetition_penalty=5e-324)
    row = make_row(params, prompt_token_ids=(1, 3))
    assert sample(logits, [row])[0].token_id == 1
