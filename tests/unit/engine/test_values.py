"""Configuration, sampling parameters and other values refuse what can't work."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_engine.config import EngineConfig
from fleetward_engine.cpu_threads import threads_for, usable_cpus
from fleetward_engine.errors import ConfigInvalid, RequestRefused
from fleetward_engine.random_numbers import uniform
from fleetward_engine.request import SamplingParams
from fleetward_engine.simulation_profile import SimulationProfile, load_profile


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"served_model_names": ()}, "served model name"),
        ({"max_num_seqs": 0}, "max_num_seqs must be at least 1"),
        ({"block_size": -1}, "block_size"),
        ({"max_model_len": 0}, "max_model_len"),
        ({"kv_cache_memory_bytes": 0}, "kv_cache_memory_bytes"),
        ({"max_num_seqs": 9, "max_num_batched_tokens": 8}, "decodes one token a step"),
        ({"simulation_profile": Path("x.json")}, "needs runner 'simulated'"),
    ],
)
def test_configurations_that_cannot_work_are_refused(  # type: ignore[no-untyped-def]
    settings, words: str
) -> None:
    base = {"model_uri": "package://m", "served_model_names": ("m",)}
    with pytest.raises(ConfigInvalid, match=words):
        EngineConfig(**{**base, **settings})
    EngineConfig(**base)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", 2**40),
        ("min_tokens", -1),
        ("min_tokens", 11),
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_p", math.nan),
        ("top_k", -1),
        ("min_p", 1.5),
        ("presence_penalty", -2.5),
        ("frequency_penalty", math.nan),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", math.inf),
        ("logprobs", 21),
        ("logit_bias", ((1, 100.5),)),
        ("logit_bias", ((1, math.nan),)),
        ("stop", ("",)),
        ("stop", ("x",) * 17),
    ],
)
def test_sampling_out_of_range_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(RequestRefused) as refusal:
        SamplingParams(**{"max_tokens": 10, name: value})  # type: ignore[arg-type]
    assert refusal.value.param == name
    assert name in str(refusal.value)


def test_sampling_at_its_limits_is_accepted() -> None:
    params = SamplingParams(
        max_tokens=1, temperature=0.0, top_p=1e-9, min_p=1.0, logprobs=20, stop=("x",) * 16
    )
    assert params.greedy
    assert not params.has_penalties
    assert SamplingParams(max_tokens=1, presence_penalty=0.1).has_penalties


@given(st.integers(), st.integers(0, 200), st.integers(0, 10_000))
def test_random_numbers_are_in_range_and_repeat(seed: int, choice: int, index: int) -> None:
    number = uniform(seed=seed, choice=choice, index=index)
    assert 0.0 <= number < 1.0
    assert number == uniform(seed=seed, choice=choice, index=index)


def test_random_numbers_differ_by_each_part_of_the_counter() -> None:
    numbers = {
        uniform(seed=seed, choice=choice, index=index)
        for seed in range(10)
        for choice in range(10)
        for index in range(10)
    }
    assert len(numbers) == 1000
    mean = sum(numbers) / 1000
    assert abs(mean - 0.5) < 4 * math.sqrt(1 / 12 / 1000)


@pytest.mark.parametrize(
    ("cpus", "cpu_max", "threads"),
    [
        (8, "max 100000", 8),
        (8, "max", 8),
        (8, "", 8),
        (8, "150000 100000", 2),
        (8, "100000 100000\n", 1),
        (8, "1000 100000", 1),
        (2, "900000 100000", 2),
        (4, "100000 0", 4),
    ],
)
def test_threads_follow_the_quota(cpus: int, cpu_max: str, threads: int) -> None:
    assert threads_for(cpus=cpus, cpu_max=cpu_max) == threads
    assert usable_cpus() >= 1


def test_step_times_are_interpolated_between_measured_batches() -> None:
    profile = SimulationProfile(
        prefill_tokens_per_second=1000, decode_step_ms={8: 40.0, 1: 20.0, 32: 100.0}
    )
    seconds = [profile.step_seconds(prefill_tokens=0, decode_rows=n) for n in (0, 1, 8, 20, 32, 64)]
    assert seconds == pytest.approx([0.0, 0.020, 0.040, 0.070, 0.100, 0.200])
    assert profile.step_seconds(prefill_tokens=500, decode_rows=8) == pytest.approx(0.540)


@given(st.integers(0, 300))
def test_a_larger_batch_never_takes_less_time(rows: int) -> None:
    profile = SimulationProfile()
    shorter = profile.step_seconds(prefill_tokens=0, decode_rows=rows)
    assert shorter <= profile.step_seconds(prefill_tokens=0, decode_rows=rows + 1)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"speed": 1}', '{"decode_step_ms": {}}', '{"decode_step_ms": {"0": 1}}',
             '{"prefill_tokens_per_second": 0}']
)  # fmt: skip
def test_a_bad_profile_is_refused_with_its_path(tmp_path: Path, text: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text)
    with pytest.raises(ConfigInvalid, match=r"profile\.json"):
        load_profile(path)
    with pytest.raises(ConfigInvalid, match="absent"):
        load_profile(tmp_path / "absent")


def test_a_profile_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text('{"decode_step_ms": {"1": 5}, "max_model_len": 100}')
    assert load_profile(path) == SimulationProfile(decode_step_ms={1: 5.0}, max_model_len=100)
    assert load_profile(None) == SimulationProfile()
