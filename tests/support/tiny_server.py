"""The whole engine process around a tiny model in float64, and where its KV lies."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fleetward_api.admin import ModelState
from fleetward_api.scope import Scope
from fleetward_engine.engine import Engine
from fleetward_engine.gguf_file import GgufFile
from fleetward_engine.gguf_loader import load_llama
from fleetward_engine.paged_kv import PagedKv
from fleetward_engine.tokenizer import ByteTokenizer
from fleetward_engine.torch_runner import TorchRunner
from tests.support.engine_server import BLOCK, RunningEngine, engine_config, running_engine
from tests.support.tiny_llama import Shape, make_reference, write_gguf

CONTEXT = 256
"""Tokens that the tiny model takes."""


def write_tiny_model(folder: Path, shape: Shape | None = None) -> Path:
    """A random model; made once, it may be served again and again."""
    path = folder / "model.gguf"
    write_gguf(make_reference(shape or Shape()), path)
    return path


def build_tiny_engine(path: Path, folder: Path, *, num_blocks: int, **config: Any) -> Engine:
    """The model in an engine with real time."""
    model = load_llama(GgufFile(path), dtype=torch.float64, device=torch.device("cpu"))
    runner = TorchRunner(model, num_blocks=num_blocks, block_size=BLOCK)
    made = replace(engine_config(folder, **config), runner="torch", simulation_profile=None)
    return Engine(made, runner, ByteTokenizer(), time.monotonic)


def state_of(engine: Engine) -> ModelState:
    """What the engine says of its model."""
    return ModelState(
        model_digest="sha256:" + "1" * 64,
        tokenizer_digest="sha256:" + "2" * 64,
        chat_template_digest="sha256:" + "3" * 64,
        engine_version="test",
        kv_layout=engine._runner.kv_layout,
        runner="torch",
    )


@asynccontextmanager
async def tiny_server(
    folder: Path,
    *,
    num_blocks: int,
    path: Path | None = None,
    config: Mapping[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[tuple[RunningEngine, Engine]]:
    """Real servers, the engine's own thread, real steps; `options` are `running_engine`'s."""
    model = path or write_tiny_model(folder)
    engine = build_tiny_engine(model, folder, num_blocks=num_blocks, **(config or {}))
    build = lambda: (engine, state_of(engine))  # noqa: E731 - a name would say no more
    async with running_engine(folder, build=build, **options) as running:
        yield running, engine


def kv_of(engine: Engine) -> NDArray[np.uint64]:
    """The memory of its keys and values: [layer, block, numbers of a block], not a copy."""
    kv = engine._runner._kv  # type: ignore[attr-defined]
    assert isinstance(kv, PagedKv)
    words: NDArray[np.uint64] = kv._data.numpy().view(np.uint64)
    return words


def blocks_of(engine: Engine, tenant: str) -> list[int]:
    """The blocks that carry bytes of the tenant."""
    pool = engine._kv_cache.pool
    owners = ((block, pool.owner(block)) for block in range(1, pool.num_blocks + 1))
    return [block for block, owner in owners if owner is not None and owner.tenant == tenant]


def scope_of(tenant: str) -> Scope:
    """A whole tenant."""
    return Scope(tenant=tenant)
