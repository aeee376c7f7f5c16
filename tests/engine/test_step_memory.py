"""What the largest steps take is within what is set aside for them, and not far below it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from fleetward_engine import attention
from fleetward_engine.attention import decode_groups
from fleetward_engine.memory.activations import StepSizes, activation_bytes
from fleetward_engine.model_runner import SampleRow, ScoreRow, StepInput
from fleetward_engine.models.linear import Linear
from fleetward_engine.models.llama import Llama, LlamaConfig, LlamaLayer
from fleetward_engine.request import SamplingParams
from fleetward_engine.torch_runner import TorchRunner

BLOCK = 16
WIDTHS = {
    "hidden": {"hidden": 256, "heads": 4, "kv_heads": 1, "ffn": 768, "vocab": 300},
    "kv": {"hidden": 32, "heads": 8, "kv_heads": 8, "ffn": 32, "vocab": 300},
    "vocab": {"hidden": 32, "heads": 2, "kv_heads": 1, "ffn": 32, "vocab": 20_000},
}
STEPS = {
    "a whole prompt": ([256], [256]),
    "the end of a long prompt": ([1024], [256]),
    "decodes": ([1000] * 8, [1] * 8),
    "both": ([1024, *[700] * 7], [249, *[1] * 7]),
}
"""Lengths of the sequences, and how many tokens of each are new: at most 256 of 8."""


def make_model(
    dtype: torch.dtype, *, hidden: int, heads: int, kv_heads: int, ffn: int, vocab: int
) -> Llama:
    head_dim = 64

    def weight(*shape: int) -> torch.Tensor:
        return torch.randn(*shape).to(dtype)

    layer = LlamaLayer(
        attention_norm=weight(hidden),
        qkv=Linear(weight((heads + 2 * kv_heads) * head_dim, hidden)),
        output=Linear(weight(hidden, heads * head_dim)),
        ffn_norm=weight(hidden),
        gate_up=Linear(weight(2 * ffn, hidden)),
        down=Linear(weight(hidden, ffn)),
    )
    config = LlamaConfig(
        num_layers=1, hidden_size=hidden, num_heads=heads, num_kv_heads=kv_heads,
        head_dim=head_dim, vocab_size=vocab, max_model_len=1024, rope_theta=1e4, rms_norm_eps=1e-5,
    )  # fmt: skip
    head = Linear(weight(vocab, hidden))
    return Llama(
        config, embedding=weight(vocab, hidden), layers=[layer], final_norm=weight(hidden),
        lm_head=head,
    )  # fmt: skip


def make_step(lengths: Sequence[int], new: Sequence[int]) -> StepInput:
    positions: list[int] = []
    offsets, tables, used = [0], [], 1
    for length, fresh in zip(lengths, new, strict=True):
        positions += range(length - fresh, length)
        offsets.append(len(positions))
        blocks = -(-length // BLOCK)
        tables.append(list(range(used, used + blocks)))
        used += blocks
    return StepInput(
        token_ids=[1] * len(positions),
        positions=positions,
        row_offsets=offsets,
        block_tables=tables,
        sample_rows=[
            SampleRow(
                row=row, params=SamplingParams(max_tokens=9), seed=1, choice=0, index=0,
                prompt_token_ids=(), output_token_ids=(), banned_token_ids=frozenset(),
            )
            for row in range(len(lengths))
        ],
        score_rows=[
            ScoreRow(row=row, skip=0, targets=[1] * (fresh - 1), top=0)
            for row, fresh in enumerate(new)
            if fresh > 1
        ],
    )  # fmt: skip


def peak_bytes(run: Callable[[], object]) -> int:
    """What was allocated at once at most, beyond what was there before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    events = profiler.profiler.kineto_results.events()
    changes = sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns())
    live = peak = 0
    for change in changes:
        live += change.nbytes()
        peak = max(peak, live)
    return peak


@pytest.mark.parametrize(
    ("kv_dtype", "invariant"), [(None, False), (torch.int8, False), (None, True)]
)
@pytest.mark.parametrize("widths", WIDTHS)
def test_the_largest_step_takes_what_is_set_aside_for_it(
    widths: str, kv_dtype: torch.dtype | None, invariant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(attention.READ_AT_ONCE, "cpu", 1 << 22)
    torch.manual_seed(0)
    model = make_model(torch.float32, **WIDTHS[widths])
    runner = TorchRunner(
        model, num_blocks=600, block_size=BLOCK, kv_dtype=kv_dtype, batch_invariant=invariant
    )
    config = model.config
    aside = activation_bytes(
        StepSizes(
            hidden=config.hidden_size,
            ffn=model.ffn_size,
            vocab=config.vocab_size,
            query_width=config.num_heads * config.head_dim,
            kv_width=2 * config.num_kv_heads * config.head_dim,
            windows=1,
            number_bytes=4,
            kv_is_packed=kv_dtype is not None,
            tokens=256,
            rows=8,
            context=1024,
            read_bytes=1 << 22,
        )
    )
    peaks = {}
    for name, step in STEPS.items():
        whole = make_step(*step)
        runner.run(whole)
        peaks[name] = peak_bytes(lambda step=whole: runner.run(step))  # type: ignore[misc]
    assert max(peaks.values()) <= aside, (aside, peaks)
    # Batch invariance reads less together.
    assert invariant or aside <= 4 * max(peaks.values()), (aside, peaks)


@pytest.mark.parametrize("most", [1, 40, 150, 10_000])
def test_rows_that_are_read_apart_answer_as_those_that_are_read_together(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model = make_model(torch.float64, **WIDTHS["hidden"])
    step = make_step([100, 7, 700, 33, 64, 65, 300], [1, 1, 1, 1, 1, 1, 4])
    answers = []
    for blocks in (10_000, most):
        monkeypatch.setitem(attention.READ_AT_ONCE, "cpu", blocks * BLOCK * 2 * 64 * 8)
        runner = TorchRunner(model, num_blocks=200, block_size=BLOCK)
        torch.manual_seed(1)
        for layer_blocks in runner._kv._data:  # type: ignore[attr-defined]
            layer_blocks[1:].normal_()
        hidden = model.forward(
            torch.tensor(step.token_ids),
            torch.tensor(step.positions),
            attention.PagedAttention(runner._kv, step, dtype=torch.float64),
        )
        answers.append(hidden)
    torch.testing.assert_close(answers[0], answers[1], rtol=1e-12, atol=1e-12)


def test_groups_hold_every_row_once_within_the_bound() -> None:
    for widths in ([], [5], [1, 1, 1], [9, 1, 4, 4, 1], list(range(1, 40)), [50, 1, 1]):
        for most in (1, 8, 30, 10_000):
            groups = decode_groups(widths, most=most)
            assert sorted(row for group in groups for row in group) == list(range(len(widths)))
            for group in groups:
                longest = max(widths[row] for row in group)
                assert len(group) == 1 or len(group) * longest <= most
    assert decode_groups([1, 9, 2], most=10_000) == [[0, 1, 2]]
