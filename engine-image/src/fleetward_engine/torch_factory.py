"""The torch engine: device, dtype, model, KV memory."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fleetward_api.admin import ModelState
from fleetward_engine.config import EngineConfig, KvCacheDtype
from fleetward_engine.cpu_threads import usable_cpus
from fleetward_engine.engine import Engine
from fleetward_engine.errors import ConfigInvalid
from fleetward_engine.loading import load_model
from fleetward_engine.model_source import resolve
from fleetward_engine.models.llama import Llama
from fleetward_engine.torch_runner import TorchRunner, kv_shape
from fleetward_engine.version import engine_version

_DEFAULT_CPU_KV_BYTES = 1 << 30
_DEFAULT_CUDA_SHARE = 0.85
"""Of the memory that is free once the weights are loaded; the rest is for activations."""


def build_torch_engine(
    config: EngineConfig, clock: Callable[[], float]
) -> tuple[Engine, ModelState]:
    """See `factory.build_engine`."""
    resolved = resolve(config.model_uri, config.model_digest)
    torch.set_num_threads(usable_cpus())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = choose_dtype(config.dtype, device)
    loaded = load_model(resolved, dtype=dtype, device=device)
    model = loaded.model
    runner = TorchRunner(
        model,
        num_blocks=count_blocks(config, model),
        block_size=config.block_size,
        kv_dtype=choose_kv_dtype(config.kv_cache_dtype, model.dtype),
    )
    state = ModelState(
        model_digest=resolved.model_digest,
        tokenizer_digest=loaded.tokenizer_digest,
        chat_template_digest=loaded.chat_template_digest,
        engine_version=engine_version(),
        kv_layout=runner.kv_layout,
        runner="torch",
    )
    return Engine(config, runner, loaded.tokenizer, clock), state


def choose_dtype(wanted: str, device: torch.device) -> torch.dtype:
    """The dtype to compute in; "auto" is bfloat16 where the device multiplies it natively."""
    if wanted == "auto":
        native = device.type != "cpu" or torch.cpu._is_avx512_bf16_supported()  # noqa: SLF001
        return torch.bfloat16 if native else torch.float32
    dtypes = {"bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}
    if wanted not in dtypes:
        raise ConfigInvalid(f"dtype {wanted!r} is none of auto, {', '.join(dtypes)}")
    return dtypes[wanted]


def choose_kv_dtype(wanted: KvCacheDtype, model: torch.dtype) -> torch.dtype:
    """The numbers to keep keys and values in; "auto" is the model's own."""
    return torch.int8 if wanted == "int8" else model


def count_blocks(config: EngineConfig, model: Llama) -> int:
    """Blocks that the KV memory holds, and no more than all sequences at full length need.

    Raises:
        ConfigInvalid: the memory holds not even one block.
    """
    block_bytes = kv_shape(model, config.block_size).block_bytes(
        choose_kv_dtype(config.kv_cache_dtype, model.dtype)
    )
    memory = config.kv_cache_memory_bytes or _default_memory(model.device)
    blocks = memory // block_bytes
    if blocks < 1:
        raise ConfigInvalid(
            f"kv_cache_memory_bytes {memory} holds not even one block of {block_bytes} bytes"
        )
    longest = config.max_model_len or model.config.max_model_len
    return min(blocks, config.max_num_seqs * -(-longest // config.block_size))


def _default_memory(device: torch.device) -> int:
    if device.type == "cpu":
        return _DEFAULT_CPU_KV_BYTES
    free, _ = torch.cuda.mem_get_info(device)
    return int(free * _DEFAULT_CUDA_SHARE)
