"""Host memory behind a real model: what comes back is what left, to the last bit."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from fleetward_engine.config import EngineConfig
from fleetward_engine.engine import Engine
from fleetward_engine.host_tier.rules import HostRules
from fleetward_engine.int8_kv import Int8Kv
from fleetward_engine.loading import load_model
from fleetward_engine.model_source import resolve
from fleetward_engine.models.llama import Llama
from fleetward_engine.paged_kv import KvMemory, KvShape, PagedKv
from fleetward_engine.request import Request, SamplingParams
from fleetward_engine.tokenizer import ByteTokenizer
from fleetward_engine.torch_runner import TorchRunner
from tests.support.checkpoints import make_config, make_weights, write_checkpoint
from tests.support.engine_core import ACME, BETA, Bench, Clock, make_request

CPU = torch.device("cpu")
SHAPE = KvShape(num_kv_heads=3, num_heads=3, head_dim=16, block_size=4, windows=(None, None))
GREEDY = SamplingParams(max_tokens=6, temperature=0.0, ignore_eos=True)
OPEN = HostRules(size=1 << 30, classes=frozenset({""}))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Llama:
    config = make_config(num_hidden_layers=3)
    folder: Path = write_checkpoint(tmp_path_factory.mktemp("m"), config, make_weights(config))
    return load_model(resolve(f"file://{folder}"), dtype=torch.float64, device=CPU).model


def make_bench(
    model: Llama, *, num_blocks: int, host_bytes: int, kv_dtype: torch.dtype | None = None
) -> Bench:
    runner = TorchRunner(model, num_blocks=num_blocks, block_size=4, kv_dtype=kv_dtype)
    settings = EngineConfig(
        model_uri="file:///m",
        served_model_names=("m",),
        block_size=4,
        max_num_seqs=4,
        max_num_batched_tokens=32,
        host_kv_cache_memory_bytes=host_bytes,
        verify_kv=True,
    )
    clock = Clock()
    bench = Bench(Engine(settings, runner, ByteTokenizer(), clock), runner, clock)  # type: ignore[arg-type]
    bench.engine.governance.set_host_rules(OPEN)
    return bench


def conversations(seed: int) -> list[Request]:
    """Two tenants' conversations that go on, turn by turn, in any order."""
    rng = random.Random(seed)  # noqa: S311 - a workload, not a secret
    texts = {
        (who, one): [rng.randrange(200) for _ in range(9)] for who in (0, 1) for one in (0, 1, 2)
    }
    requests = []
    for number in range(18):
        who, one = rng.choice(list(texts))
        texts[who, one] += [rng.randrange(200) for _ in range(rng.randrange(6))]
        scope = (ACME, BETA)[who]
        requests.append(
            make_request(str(number), tuple(texts[who, one]), scope=scope, sampling=GREEDY)
        )
    return requests


@pytest.mark.parametrize("kv_dtype", [None, torch.int8])
def test_answers_are_the_same_with_host_memory_and_without(
    model: Llama, kv_dtype: torch.dtype | None
) -> None:
    roomy = make_bench(model, num_blocks=400, host_bytes=0, kv_dtype=kv_dtype)
    tight = make_bench(model, num_blocks=14, host_bytes=0, kv_dtype=kv_dtype)
    tiered = make_bench(model, num_blocks=14, host_bytes=1 << 22, kv_dtype=kv_dtype)
    for request in conversations(seed=3):
        for bench in (roomy, tight, tiered):
            bench.run(request)
        answers = [bench.tokens(request.request_id) for bench in (roomy, tight, tiered)]
        assert answers[0] == answers[1] == answers[2]
    counters = tiered.engine.stats().host.counters
    assert counters.loads > 10
    assert counters.damaged == tiered.engine.stats().kv_corruptions == 0
    hits = [bench.engine.stats().prefix_hit_tokens for bench in (roomy, tight, tiered)]
    assert hits[0] == hits[2] > hits[1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [PagedKv, Int8Kv])
def test_a_blocks_bytes_survive_the_way_out_and_in(
    kind: type[PagedKv | Int8Kv], dtype: torch.dtype
) -> None:
    kv: KvMemory = kind(SHAPE, num_blocks=5, dtype=dtype, device=CPU)
    slots = torch.arange(4, 24)
    for layer in (0, 1):
        kv.write(layer, slots, torch.randn(20, SHAPE.token_width, dtype=dtype))
    before = kv.raw([1, 2, 3, 4, 5])
    data = np.zeros(kv.block_bytes, dtype=np.uint8)
    torch.from_numpy(data).copy_(kv.raw([3]).view(-1))
    kv.zero([3])
    assert not kv.raw([3]).any()
    kv.put(3, torch.from_numpy(data))
    assert torch.equal(kv.raw([1, 2, 3, 4, 5]), before)
    kv.put(5, torch.from_numpy(data))
    assert torch.equal(kv.raw([5]), before[:, 2:3])


def test_nothing_of_a_block_is_found_in_host_memory_while_it_is_encrypted(model: Llama) -> None:
    bench = make_bench(model, num_blocks=12, host_bytes=1 << 22)
    prompt = tuple(range(33))
    bench.run(make_request("first", prompt, sampling=GREEDY))
    pool, runner = bench.engine._kv_cache.pool, bench.runner
    plain = {block: np.zeros(runner.block_bytes, dtype=np.uint8) for block in range(1, 10)}
    for block, data in plain.items():
        runner.read_block(block, data)
    assert all(data.any() for block, data in plain.items() if pool.is_retained(block))
    bench.run(make_request("push", range(100, 133), scope=BETA, sampling=GREEDY))
    assert bench.engine.stats().host.counters.offloads > 5
    memory = bench.engine._kv_cache.host._arena.rows.tobytes()
    for data in plain.values():
        for start in range(0, data.size - 16, 64):
            piece = data[start : start + 16].tobytes()
            assert not any(piece) or piece not in memory
