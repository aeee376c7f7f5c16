"""The torch engine: device, dtype, model, KV memory."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch

from fleetward_api.admin import MemoryState, ModelState
from fleetward_engine.attention import READ_AT_ONCE
from fleetward_engine.config import EngineConfig, KvCacheDtype
from fleetward_engine.cpu_threads import usable_cpus
from fleetward_engine.engine import Engine
from fleetward_engine.errors import ConfigInvalid
from fleetward_engine.loading import load_model
from fleetward_engine.memory.activations import StepSizes, activation_bytes
from fleetward_engine.memory.available import HostMemory, host_memory
from fleetward_engine.memory.budget import Needs, check_host_kv, count_blocks, table
from fleetward_engine.model_source import resolve
from fleetward_engine.models.llama import Llama
from fleetward_engine.torch_runner import TorchRunner, kv_shape
from fleetward_engine.version import engine_version

logger = logging.getLogger(__name__)

_SHARED_KV_BYTES = 1 << 30
"""Of a memory that others use as well, KV takes no more than this by itself."""
_REQUESTS_BYTES = 64 << 20
"""What a server holds for requests on their way: bodies, texts, token ids."""


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
    num_blocks, memory = plan_memory(config, model, host_memory())
    logger.info("memory:\n%s", table(memory))
    runner = TorchRunner(
        model,
        num_blocks=num_blocks,
        block_size=config.block_size,
        kv_dtype=choose_kv_dtype(config.kv_cache_dtype, model.dtype),
        batch_invariant=config.batch_invariant,
    )
    state = ModelState(
        model_digest=resolved.model_digest,
        tokenizer_digest=loaded.tokenizer_digest,
        chat_template_digest=loaded.chat_template_digest,
        engine_version=engine_version(),
        kv_layout=runner.kv_layout,
        runner="torch",
        memory=memory,
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


def plan_memory(config: EngineConfig, model: Llama, host: HostMemory) -> tuple[int, MemoryState]:
    """Blocks of KV to have, no more than all sequences at full length need, and the whole budget.

    Raises:
        ConfigInvalid: it does not fit; the message is the sum.
    """
    block_bytes = kv_shape(model, config.block_size).block_bytes(
        choose_kv_dtype(config.kv_cache_dtype, model.dtype)
    )
    needs = _needs(config, model, host)
    wanted = config.kv_cache_memory_bytes
    if wanted is None and model.device.type == "cpu" and not config.owns_container:
        wanted = min(_SHARED_KV_BYTES, needs.left_for_kv)
    blocks = count_blocks(
        needs,
        wanted=wanted,
        block_bytes=block_bytes,
        most=config.max_num_seqs * -(-_longest(config, model) // config.block_size),
    )
    return blocks, needs.with_kv((blocks + 1) * block_bytes)


def _needs(config: EngineConfig, model: Llama, host: HostMemory) -> Needs:
    activations = activation_bytes(_largest_step(config, model))
    if model.device.type != "cpu":
        check_host_kv(
            config.host_kv_cache_memory_bytes,
            limit=host.limit,
            runtime=host.in_use + _REQUESTS_BYTES,
        )
        free, _ = torch.cuda.mem_get_info(model.device)
        return Needs(
            available=free + torch.cuda.memory_reserved(model.device),
            weights=model.weight_bytes,
            activations=activations,
            runtime=0,
        )
    return Needs(
        available=host.limit,
        weights=model.weight_bytes,
        activations=activations,
        runtime=max(0, host.in_use - model.weight_bytes) + _REQUESTS_BYTES,
        host_kv=config.host_kv_cache_memory_bytes,
    )


def _largest_step(config: EngineConfig, model: Llama) -> StepSizes:
    shape = model.config
    return StepSizes(
        hidden=shape.hidden_size,
        ffn=model.ffn_size,
        vocab=shape.vocab_size,
        query_width=shape.num_heads * shape.head_dim,
        kv_width=2 * shape.num_kv_heads * shape.head_dim,
        windows=len(set(shape.windows)) or 1,
        number_bytes=model.dtype.itemsize,
        kv_is_packed=config.kv_cache_dtype == "int8",
        tokens=config.max_num_batched_tokens,
        rows=config.max_num_seqs,
        context=_longest(config, model),
        read_bytes=READ_AT_ONCE[model.device.type],
    )


def _longest(config: EngineConfig, model: Llama) -> int:
    return config.max_model_len or model.config.max_model_len
