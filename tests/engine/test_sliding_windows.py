"""Layers that see only the last positions compute what the dense reference does, at every edge."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from fleetward_engine.config import EngineConfig
from fleetward_engine.engine import Engine
from fleetward_engine.loading import load_model
from fleetward_engine.model_source import resolve
from fleetward_engine.models.llama import Llama
from fleetward_engine.request import SamplingParams
from fleetward_engine.tokenizer import ByteTokenizer
from fleetward_engine.torch_runner import TorchRunner
from tests.support.checkpoints import Config, Weights, make_config, make_weights, write_checkpoint
from tests.support.demo_model import our_logits
from tests.support.dense_llama import dense_logits
from tests.support.engine_core import Bench, Clock, make_request

BLOCK = 4
HYBRID = ["sliding_attention", "full_attention", "sliding_attention"]
Windows = tuple[int | None, ...]


def make(window: int, **changes: object) -> tuple[Config, Weights]:
    config = make_config(
        architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=window,
        num_hidden_layers=3, **changes,
    )  # fmt: skip
    return config, make_weights(config)


def load(folder: Path) -> Llama:
    resolved = resolve(f"file://{folder}")
    return load_model(resolved, dtype=torch.float64, device=torch.device("cpu")).model


def random_tokens(count: int) -> list[int]:
    return torch.randint(0, 256, (count,)).tolist()


@pytest.mark.parametrize("kinds", [None, HYBRID], ids=["all layers", "hybrid"])
@pytest.mark.parametrize("window", [1, 3, 4, 5, 16])
def test_every_length_and_chunk_around_the_window_agrees(
    window: int, kinds: list[str] | None, tmp_path: Path
) -> None:
    config, weights = make(window, layer_types=kinds)
    model = load(write_checkpoint(tmp_path, config, weights))
    windows: Windows = (window, None, window) if kinds else (window,) * 3
    assert model.config.windows == windows
    for length in {max(2, window - 1), window + 1, window + 2, 4 * window + 3, 40}:
        tokens = random_tokens(length)
        expected = dense_logits(config, weights, tokens, windows=windows)
        edge = min(window, length - 1)
        for chunks in ([length], [1] * length, [edge, length - edge], [length - 1, 1]):
            got = our_logits(model, tokens, chunks=chunks, block_size=BLOCK)
            assert float((got - expected).abs().max()) < 1e-9
    whole = dense_logits(config, weights, tokens)
    assert float((whole - expected).abs().max()) > 0.01


def test_the_window_is_that_of_transformers(tmp_path: Path) -> None:
    cases: list[Config] = [
        make(6)[0],
        make_config(
            architectures=["Qwen2ForCausalLM"], model_type="qwen2", sliding_window=6,
            use_sliding_window=True, max_window_layers=1, num_hidden_layers=3,
        ),
    ]  # fmt: skip
    for number, config in enumerate(cases):
        weights = make_weights(config, qkv_bias=number == 1)
        folder = write_checkpoint(tmp_path / str(number), config, weights)
        theirs = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float64, attn_implementation="eager"
        )
        tokens = random_tokens(40)
        with torch.inference_mode():
            expected = theirs.eval()(torch.tensor([tokens]), use_cache=False).logits[0]
        model = load(folder)
        assert model.config.windows == ((6, 6, 6) if number == 0 else (None, 6, 6))
        got = our_logits(model, tokens, chunks=[9, 1, 30], block_size=BLOCK)
        assert float((got - expected).abs().max()) < 1e-4


@pytest.mark.parametrize("preempt", [False, True])
def test_a_batch_writes_what_each_request_alone_does(tmp_path: Path, preempt: bool) -> None:
    config, weights = make(7, layer_types=HYBRID)
    folder = write_checkpoint(tmp_path, config, weights)
    runner = TorchRunner(load(folder), num_blocks=300, block_size=BLOCK)
    settings = EngineConfig(
        model_uri=f"file://{folder}", served_model_names=("m",), block_size=BLOCK,
        max_num_batched_tokens=64,
    )  # fmt: skip
    bench = Bench(Engine(settings, runner, ByteTokenizer(), Clock()), runner, Clock())  # type: ignore[arg-type]
    shared = random_tokens(20)
    prompts = [shared[: 4 * n] + random_tokens(n + 1) for n in range(6)]
    params = SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True)
    for number, prompt in enumerate(prompts):
        bench.engine.add_request(make_request(str(number), prompt, sampling=params))
    while bench.engine.has_work:
        bench.step()
        for number in range(len(prompts) if preempt else 0):
            bench.engine.preempt(str(number))
    for number, prompt in enumerate(prompts):
        tokens = list(prompt)
        for _ in range(8):
            logits = dense_logits(config, weights, tokens, windows=(7, None, 7))
            tokens.append(int(logits[-1].argmax()))
        assert bench.tokens(str(number)) == tokens[len(prompt) :]
    assert "window=7+none" in runner.kv_layout
