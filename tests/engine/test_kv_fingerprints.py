"""`verify_kv` on real KV: any changed bit, in any layer and layout, costs a hit and no token."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fleetward_engine.config import EngineConfig
from fleetward_engine.engine import Engine
from fleetward_engine.int8_kv import Int8Kv
from fleetward_engine.kv_fingerprint import KvFingerprint
from fleetward_engine.loading import load_model
from fleetward_engine.model_source import resolve
from fleetward_engine.models.llama import Llama
from fleetward_engine.paged_kv import KvMemory, KvShape, PagedKv
from fleetward_engine.request import SamplingParams
from fleetward_engine.tokenizer import ByteTokenizer
from fleetward_engine.torch_runner import TorchRunner
from tests.support.checkpoints import make_config, make_weights, write_checkpoint
from tests.support.engine_core import Bench, Clock, make_request

CPU = torch.device("cpu")
SHAPE = KvShape(num_kv_heads=3, num_heads=3, head_dim=6, block_size=4, windows=(None, None))
BLOCKS = 7
PARAMS = SamplingParams(max_tokens=6, temperature=0.0, ignore_eos=True)


def make_kv(kind: str) -> KvMemory:
    """A memory full of numbers; 3 heads of 6 make an odd number of 32-bit words in int8."""
    torch.manual_seed(1)
    dtype = torch.float32 if kind == "int8" else getattr(torch, kind)
    make = Int8Kv if kind == "int8" else PagedKv
    kv = make(SHAPE, num_blocks=BLOCKS, dtype=dtype, device=CPU)
    slots = torch.arange(4, (BLOCKS + 1) * 4)
    for layer in range(SHAPE.num_layers):
        kv.write(layer, slots, torch.randn(len(slots), SHAPE.token_width, dtype=dtype))
    return kv


@given(
    kind=st.sampled_from(["int8", "bfloat16", "float32", "float64"]),
    block=st.integers(1, BLOCKS),
    place=st.floats(0, 1, exclude_max=True),
    bit=st.integers(0, 7),
)
def test_any_one_bit_of_a_block_changes_its_number_and_no_other(
    kind: str, block: int, place: float, bit: int
) -> None:
    kv = make_kv(kind)
    numbers = KvFingerprint(kv)
    every = list(range(1, BLOCKS + 1))
    before = numbers(every)
    layer, byte = divmod(int(place * kv.block_bytes), kv.block_bytes // SHAPE.num_layers)
    kv._data[layer, block].view(torch.uint8)[byte] ^= 1 << bit  # type: ignore[attr-defined]
    after = numbers(every)
    assert [one for one in every if before[one - 1] != after[one - 1]] == [block]


def test_where_words_lie_counts() -> None:
    kv = make_kv("float64")
    numbers = KvFingerprint(kv)
    before = numbers([3])
    data = kv._data  # type: ignore[attr-defined]
    data[:, 3, [0, 1]] = data[:, 3, [1, 0]]
    assert numbers([3]) != before


def test_many_blocks_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    kv = make_kv("bfloat16")
    whole = KvFingerprint(kv)([5, 1, 7, 2, 2])
    monkeypatch.setattr("fleetward_engine.kv_fingerprint._AT_ONCE_BYTES", 2 * kv.block_bytes)
    assert KvFingerprint(kv)([5, 1, 7, 2, 2]) == whole


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Llama:
    config = make_config(num_hidden_layers=3)
    folder: Path = write_checkpoint(tmp_path_factory.mktemp("m"), config, make_weights(config))
    return load_model(resolve(f"file://{folder}"), dtype=torch.float64, device=CPU).model


@pytest.mark.parametrize("kv_dtype", [None, torch.int8])
@pytest.mark.parametrize("layer", [0, 2])
def test_a_request_that_comes_back_to_a_changed_block_computes_it_anew(
    model: Llama, kv_dtype: torch.dtype | None, layer: int
) -> None:
    runner = TorchRunner(model, num_blocks=64, block_size=4, kv_dtype=kv_dtype)
    settings = EngineConfig(
        model_uri="file:///m", served_model_names=("m",), block_size=4, verify_kv=True
    )
    bench = Bench(Engine(settings, runner, ByteTokenizer(), Clock()), runner, Clock())  # type: ignore[arg-type]
    prompt = list(range(40, 61))
    bench.run(make_request("first", prompt, sampling=PARAMS))
    assert bench.run(make_request("same", prompt, sampling=PARAMS))[0].cached_tokens == 20
    entries = list(bench.engine._kv_cache.index._entries.values())
    runner._kv._data[layer, entries[2].block].view(torch.uint8)[7] ^= 1  # type: ignore[attr-defined]
    assert bench.run(make_request("again", prompt, sampling=PARAMS))[0].cached_tokens == 8
    assert bench.tokens("again") == bench.tokens("same") == bench.tokens("first")
    assert bench.engine.stats().kv_corruptions == 1
