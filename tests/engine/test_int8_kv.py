"""Keys and values in eight bits: close to what they stand for, however they came about."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fleetward_engine.config import EngineConfig, KvCacheDtype
from fleetward_engine.engine import Engine
from fleetward_engine.errors import ConfigInvalid
from fleetward_engine.factory import build_engine
from fleetward_engine.int8_kv import Int8Kv
from fleetward_engine.loading import load_model
from fleetward_engine.memory.available import HostMemory
from fleetward_engine.model_source import resolve
from fleetward_engine.models.llama import Llama
from fleetward_engine.paged_kv import KvShape
from fleetward_engine.request import SamplingParams
from fleetward_engine.tokenizer import ByteTokenizer
from fleetward_engine.torch_factory import plan_memory
from fleetward_engine.torch_runner import TorchRunner
from tests.support.checkpoints import make_config, make_weights, write_checkpoint
from tests.support.demo_model import our_logits
from tests.support.engine_core import BETA, Bench, Clock, make_request

CPU = torch.device("cpu")
SHAPE = KvShape(num_kv_heads=3, num_heads=3, head_dim=16, block_size=4, windows=(None, None))
PARAMS = SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True)


def make_kv(dtype: torch.dtype = torch.float32) -> Int8Kv:
    return Int8Kv(SHAPE, num_blocks=5, dtype=dtype, device=CPU)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Llama:
    config = make_config(num_hidden_layers=3)
    folder: Path = write_checkpoint(tmp_path_factory.mktemp("m"), config, make_weights(config))
    return load_model(resolve(f"file://{folder}"), dtype=torch.float64, device=CPU).model


def make_bench(model: Llama, *, num_blocks: int = 300, budget: int = 512) -> Bench:
    runner = TorchRunner(model, num_blocks=num_blocks, block_size=4, kv_dtype=torch.int8)
    settings = EngineConfig(
        model_uri="file:///m", served_model_names=("m",), block_size=4, kv_cache_dtype="int8",
        max_num_batched_tokens=budget, max_num_seqs=16,
    )  # fmt: skip
    return Bench(Engine(settings, runner, ByteTokenizer(), Clock()), runner, Clock())  # type: ignore[arg-type]


@given(st.floats(-20, 20), st.integers(0, 2**32 - 1))
def test_no_number_is_off_by_more_than_half_a_step_of_its_own_head(power: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    kv = torch.randn(7, SHAPE.token_width, generator=generator) * 10**power
    heads = kv.view(7, 2, 3, 16)
    steps = heads.abs().amax(-1, keepdim=True) / 127
    error = (make_kv().as_stored(kv) - heads).abs()
    assert bool((error <= steps * 0.5001).all())


def test_what_is_read_is_what_was_written_and_zeroed_blocks_hold_nothing() -> None:
    kv = make_kv()
    tokens = torch.randn(4, SHAPE.token_width)
    kv.write(1, torch.tensor([8, 9, 13, 14]), tokens)
    read = kv.read(1, torch.tensor([3, 2]))
    assert torch.equal(read[[4, 5, 1, 2]], kv.as_stored(tokens))
    assert float(read[[0, 3, 6, 7]].abs().max()) == 0.0
    assert float(kv.read(0, torch.tensor([2, 3])).abs().max()) == 0.0
    kv.zero([2])
    assert int(kv._data[:, 2].count_nonzero()) == 0
    assert int(kv._data[1, 3].count_nonzero()) > 0


def test_zeros_stay_zeros_and_what_is_not_finite_stays_so() -> None:
    kv = make_kv()
    tokens = torch.zeros(3, SHAPE.token_width)
    tokens[1, 5] = float("nan")
    tokens[2, 60] = float("inf")
    stored = kv.as_stored(tokens)
    assert float(stored[0].abs().max()) == 0.0
    assert not bool(stored[1, 0, 0].isfinite().any())
    assert not bool(stored[2, 1, 0].isfinite().any())
    assert bool(stored[1, 1].isfinite().all())


def test_a_block_holds_nearly_twice_the_tokens_of_bfloat16() -> None:
    wide = KvShape(num_kv_heads=3, num_heads=9, head_dim=64, block_size=32, windows=(None,) * 30)
    assert wide.block_bytes(torch.int8) == 30 * 32 * 2 * 3 * (64 + 4)
    assert wide.block_bytes(torch.bfloat16) / wide.block_bytes(torch.int8) > 1.88
    assert make_kv().block_bytes == make_kv()._data[:, 0].nbytes


def test_logits_do_not_depend_on_how_the_prompt_was_cut(model: Llama) -> None:
    tokens = torch.randint(0, 256, (45,)).tolist()
    whole, *others = (
        our_logits(model, tokens, chunks=chunks, block_size=4, kv_dtype=torch.int8)
        for chunks in ([45], [1] * 45, [13, 1, 31], [44, 1])
    )
    for logits in others:
        assert float((logits - whole).abs().max()) < 1e-9
    exact = our_logits(model, tokens, chunks=[45], block_size=4)
    assert 0 < float((whole - exact).abs().max()) < 1.0


def test_a_batch_that_is_preempted_and_cached_writes_what_each_request_alone_does(
    model: Llama,
) -> None:
    shared = torch.randint(0, 256, (24,)).tolist()
    prompts = [shared[: 8 * n] + torch.randint(0, 256, (n + 2,)).tolist() for n in range(4)] * 2
    alone = []
    for prompt in prompts:
        bench = make_bench(model)
        bench.run(make_request("0", prompt, sampling=PARAMS))
        alone.append(bench.tokens("0"))
    bench = make_bench(model, num_blocks=60, budget=16)
    for number, prompt in enumerate(prompts):
        bench.engine.add_request(make_request(str(number), prompt, sampling=PARAMS))
    for step in range(10_000):
        if not bench.engine.has_work:
            break
        bench.step()
        bench.engine.preempt(str(step % len(prompts)))
    assert [bench.tokens(str(number)) for number in range(len(prompts))] == alone
    assert bench.engine.stats().prefix_hit_tokens > 0
    assert "float64+int8/" in bench.runner.kv_layout


def test_nan_fails_its_own_request_and_leaves_no_block(model: Llama) -> None:
    good = list(range(10, 31))
    embedding = model._embedding
    kept = embedding[7].clone()
    bench = make_bench(model)
    bench.run(make_request("alone", good, sampling=PARAMS, scope=BETA))
    embedding[7] = float("nan")
    try:
        outputs = bench.run(
            make_request("bad", [*range(40, 50), 7, *range(60, 70)], sampling=PARAMS),
            make_request("good", good, sampling=PARAMS, scope=BETA),
        )
    finally:
        embedding[7] = kept
    assert [output.finish_reason for output in outputs] == ["error", "length"]
    assert bench.tokens("good") == bench.tokens("alone")
    kv = cast("Any", bench.runner)._kv
    blocks = torch.arange(300 + 1)
    assert all(bool(kv.read(layer, blocks).isfinite().all()) for layer in range(3))


def test_the_pool_is_counted_in_what_is_stored(model: Llama) -> None:
    def blocks(kind: KvCacheDtype) -> int:
        settings = EngineConfig(
            model_uri="file:///m", served_model_names=("m",), kv_cache_memory_bytes=10_000_000,
            kv_cache_dtype=kind, max_num_seqs=1000, max_num_batched_tokens=1000,
        )  # fmt: skip
        return plan_memory(settings, model, HostMemory(limit=64 << 30, in_use=0))[0]

    # A token and layer: 2 x 2 heads of 8 float64 numbers, or of 8 bytes and a scale.
    assert blocks("auto") == 10_000_000 // (32 * 3 * 4 * 64)
    assert blocks("int8") == min(8000, 10_000_000 // (32 * 3 * 4 * 12))


def test_a_simulation_keeps_no_keys_and_values_in_eight_bits() -> None:
    with pytest.raises(ConfigInvalid, match="kv_cache_dtype 'int8' needs runner 'torch'"):
        build_engine(
            EngineConfig(
                model_uri="package://m", served_model_names=("m",), runner="simulated",
                kv_cache_dtype="int8",
            ),
            lambda: 0.0,
        )  # fmt: skip
