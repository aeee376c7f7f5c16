"""`batch_invariant`: to the bit the same logits, alone or among others, however a prompt is cut."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fleetward_engine.attention import PagedAttention
from fleetward_engine.config import EngineConfig
from fleetward_engine.engine import Engine
from fleetward_engine.errors import ConfigInvalid
from fleetward_engine.loading import load_model
from fleetward_engine.model_runner import StepInput
from fleetward_engine.model_source import resolve
from fleetward_engine.models.linear import Linear
from fleetward_engine.models.llama import Llama
from fleetward_engine.request import SamplingParams
from fleetward_engine.tokenizer import ByteTokenizer
from fleetward_engine.torch_runner import TorchRunner
from tests.support.checkpoints import make_config, make_weights, write_checkpoint
from tests.support.engine_core import BETA, Bench, Clock, make_request

BLOCK = 8
LENGTH = 61
DTYPES = [torch.float32, torch.bfloat16]
KINDS: list[tuple[torch.dtype, torch.dtype | None]] = [
    (torch.float32, None), (torch.bfloat16, None), (torch.bfloat16, torch.int8),
]  # fmt: skip
PROMPT = [(11 * number) % 250 for number in range(LENGTH)]


def load(folder: Path, dtype: torch.dtype) -> Llama:
    return load_model(resolve(f"file://{folder}"), dtype=dtype, device=torch.device("cpu")).model


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[torch.dtype, Llama]:
    config = make_config(num_hidden_layers=2)
    folder = write_checkpoint(tmp_path_factory.mktemp("m"), config, make_weights(config))
    return {dtype: load(folder, dtype) for dtype in DTYPES}


class Rows:
    """A runner whose logits are looked at, and rows that it computes step by step."""

    def __init__(self, model: Llama, kv_dtype: torch.dtype | None = None) -> None:
        self.runner = TorchRunner(
            model, num_blocks=700, block_size=BLOCK, kv_dtype=kv_dtype, batch_invariant=True
        )
        self.free = list(range(1, 700))
        self.tables: dict[int, list[int]] = {}

    def table(self, row: int) -> list[int]:
        if row not in self.tables:
            self.tables[row] = [self.free.pop() for _ in range(-(-LENGTH // BLOCK))]
        return self.tables[row]

    @torch.inference_mode()
    def step(self, parts: Sequence[tuple[int, int, int]]) -> list[Tensor]:
        """Compute (row, first position, end) of each; returns their logits, [tokens, vocab]."""
        ids: list[int] = []
        positions: list[int] = []
        offsets = [0]
        for row, first, end in parts:
            ids += [(token + 7 * row) % 250 for token in PROMPT[first:end]]
            positions += range(first, end)
            offsets.append(len(ids))
        step = StepInput(ids, positions, offsets, [self.table(row) for row, _, _ in parts], [])
        attention = self.runner._attention(self.runner._kv, step, dtype=self.runner._model.dtype)
        hidden = self.runner._model.forward(
            torch.tensor(ids), torch.tensor(positions), attention, rowwise=self.runner._rowwise
        )
        logits = self.runner._logits(hidden)
        return [logits[start:end] for start, end in pairwise(offsets)]


Alone = dict[tuple[torch.dtype, torch.dtype | None], Tensor]


@pytest.fixture(scope="module")
def expected(models: dict[torch.dtype, Llama]) -> Alone:
    """Logits of the first row when it is computed alone and in one step."""
    return {kind: Rows(models[kind[0]], kind[1]).step([(0, 0, LENGTH)])[0] for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("others", [1, 6, 31])
@pytest.mark.parametrize("chunk", [1, 5, 8, 32])
def test_logits_are_bitwise_those_of_the_request_alone(
    models: dict[torch.dtype, Llama],
    expected: Alone,
    kind: tuple[torch.dtype, torch.dtype | None],
    others: int,
    chunk: int,
) -> None:
    rows = Rows(models[kind[0]], kind[1])
    found: list[Tensor] = []
    for number, first in enumerate(range(0, LENGTH, chunk)):
        end = min(LENGTH, first + chunk)
        parts = [(0, first, end)]
        if number < 2:  # beside prompts of other lengths, which make the batch ragged
            parts += [(1 + row, 0, 1 + (row * 13 + number) % 24) for row in range(others)]
        elif others < 31 or number < 4:  # beside decodes
            parts += [(1 + row, 24, 25) for row in range(others)]
        place = (number * 5) % len(parts)
        parts[0], parts[place] = parts[place], parts[0]
        found.append(rows.step(parts)[place])
    assert torch.equal(torch.cat(found), expected[kind])


def make_bench(model: Llama, *, budget: int, num_blocks: int = 400) -> Bench:
    runner = TorchRunner(model, num_blocks=num_blocks, block_size=BLOCK, batch_invariant=True)
    config = EngineConfig(
        model_uri="file:///m", served_model_names=("m",), block_size=BLOCK,
        max_num_batched_tokens=budget, max_num_seqs=16, batch_invariant=True,
    )  # fmt: skip
    return Bench(Engine(config, runner, ByteTokenizer(), Clock()), runner, Clock())  # type: ignore[arg-type]


@settings(max_examples=12)
@given(budget=st.integers(16, 96), others=st.integers(0, 9), again=st.booleans())
def test_sampled_tokens_and_their_log_probabilities_do_not_know_their_neighbours(
    models: dict[torch.dtype, Llama], budget: int, others: int, again: bool
) -> None:
    model = models[torch.bfloat16]
    params = SamplingParams(max_tokens=8, temperature=0.9, seed=5, logprobs=4, ignore_eos=True)
    lone = make_bench(model, budget=512)
    lone.run(make_request("r", PROMPT, sampling=params))
    expected = [one.logprobs for one in lone.outputs["r"]]
    bench = make_bench(model, budget=budget)
    if again:  # its prompt is found in the cache, as another batch computed it
        bench.run(make_request("first", PROMPT), make_request("x", PROMPT[9:], scope=BETA))
    crowd = [
        make_request(f"o{number}", PROMPT[number * 3 :], scope=BETA, max_tokens=5)
        for number in range(others)
    ]
    bench.run(*crowd[:4], make_request("r", PROMPT, sampling=params), *crowd[4:])
    assert [one.logprobs for one in bench.outputs["r"]] == expected


def test_it_computes_what_the_ordinary_mode_does(
    models: dict[torch.dtype, Llama], expected: Alone
) -> None:
    model = models[torch.float32]
    rows = Rows(model)
    rows.runner = TorchRunner(model, num_blocks=700, block_size=BLOCK)
    ordinary = rows.step([(0, 0, LENGTH)])[0]
    assert torch.allclose(expected[torch.float32, None], ordinary, atol=1e-4)


@pytest.mark.parametrize("window", [1, 7, 8, 9, 30])
def test_windows_cut_the_same(tmp_path: Path, window: int) -> None:
    config = make_config(
        architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=window
    )
    model = load(write_checkpoint(tmp_path / "m", config, make_weights(config)), torch.float32)
    expected = Rows(model).step([(0, 0, LENGTH)])[0]
    rows = Rows(model)
    found = [
        rows.step([(0, first, first + 1), (1, first, first + 1)])[0] for first in range(LENGTH)
    ]
    assert torch.equal(torch.cat(found), expected)
    plain = Rows(model)
    plain.runner = TorchRunner(model, num_blocks=700, block_size=BLOCK)
    assert torch.allclose(plain.step([(0, 0, LENGTH)])[0], expected, atol=1e-4)


def test_a_device_that_cannot_keep_it_is_refused(
    models: dict[torch.dtype, Llama], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Linear.__call__

    def placed(self: Linear, x: Tensor) -> Tensor:
        y = real(self, x).clone()
        y[-1] += 1e-3
        return y

    monkeypatch.setattr(Linear, "__call__", placed)
    with pytest.raises(ConfigInvalid, match="batch_invariant can't be kept here"):
        TorchRunner(models[torch.float32], num_blocks=4, block_size=8, batch_invariant=True)


def test_without_the_mode_nothing_is_checked_or_cut(models: dict[torch.dtype, Llama]) -> None:
    runner = TorchRunner(models[torch.float32], num_blocks=4, block_size=8)
    assert runner._attention is PagedAttention
