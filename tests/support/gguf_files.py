"""Tiny model files in GGUF, whole or with something missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from gguf import GGUFWriter

from fleetward_engine.gguf_file import GgufFile

_BYTES = [chr(byte) if 0x21 <= byte < 0x7F else chr(0x100 + byte) for byte in range(256)]
BASE: dict[str, object] = {
    "llama.block_count": 1,
    "llama.context_length": 64,
    "llama.embedding_length": 8,
    "llama.attention.head_count": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}
TENSORS = {
    "token_embd": (258, 8),
    "output_norm": (8,),
    "blk.0.attn_norm": (8,),
    "blk.0.attn_q": (8, 8),
    "blk.0.attn_k": (8, 8),
    "blk.0.attn_v": (8, 8),
    "blk.0.attn_output": (8, 8),
    "blk.0.ffn_norm": (8,),
    "blk.0.ffn_gate": (12, 8),
    "blk.0.ffn_up": (12, 8),
    "blk.0.ffn_down": (8, 12),
}


def write(
    path: Path,
    *,
    architecture: str = "llama",
    metadata: dict[str, object] | None = None,
    extra: tuple[str, ...] = (),
    missing: str = "",
) -> GgufFile:
    """Write a model of one layer and weights of one, and read it."""
    writer = GGUFWriter(path, architecture)
    for key, value in {**BASE, **(metadata or {})}.items():
        add: Callable[..., None] = {
            int: writer.add_uint32, float: writer.add_float32, str: writer.add_string,
            bool: writer.add_bool, list: writer.add_array,
        }[type(value)]  # fmt: skip
        add(key, value)
    for name, shape in {**TENSORS, **dict.fromkeys(extra, (8,))}.items():
        if name != missing:
            writer.add_tensor(f"{name}.weight", np.ones(shape, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return GgufFile(path)


def tokenizer_metadata(**changes: object) -> dict[str, object]:
    """The metadata of a tokenizer of bytes, one merge and one control token."""
    tokens = [*_BYTES, "<|end|>", "Ab"]
    values: dict[str, object] = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "token_type": [1] * 256 + [3, 1],
        "merges": ["A b"],
        "eos_token_id": 256,
        "bos_token_id": 256,
        "add_bos_token": True,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in {**values, **changes}.items()}
