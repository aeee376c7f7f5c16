"""The isolation probe of an engine that computes: real KV of a tiny random model."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from fleetward_api.admin import ModelState
from fleetward_api.isolation_probe import (
    ISOLATION_PROBE_PATH,
    ProbeOrder,
    ProbeReport,
    judge_probe,
)
from fleetward_engine.engine import Engine
from fleetward_engine.gguf_file import GgufFile
from fleetward_engine.gguf_loader import load_llama
from fleetward_engine.server import cache_context
from fleetward_engine.tokenizer import ByteTokenizer
from fleetward_engine.torch_runner import TorchRunner
from tests.support.engine_server import BLOCK, RunningEngine, engine_config, running_engine
from tests.support.tiny_llama import Shape, make_reference, write_gguf


async def probe(engine: RunningEngine) -> ProbeReport:
    answer = await engine.admin("POST", ISOLATION_PROBE_PATH, ProbeOrder(deadline_ms=60_000))
    assert answer.status_code == 200, answer.text
    return ProbeReport.model_validate_json(answer.content)


async def test_torch_is_proved_and_caught_like_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(make_reference(Shape()), path)
    model = load_llama(GgufFile(path), dtype=torch.float64, device=torch.device("cpu"))
    runner = TorchRunner(model, num_blocks=32, block_size=BLOCK)

    def build() -> tuple[Engine, ModelState]:
        config = engine_config(tmp_path)
        state = ModelState(model_digest="sha256:" + "1" * 64, kv_layout=runner.kv_layout)
        return Engine(config, runner, ByteTokenizer(), time.monotonic), state

    async with running_engine(tmp_path, build=build) as engine:
        report = await probe(engine)
        assert judge_probe(report).verdict == "Proved", report
        monkeypatch.setattr(cache_context, "cache_root", lambda *_facts: bytes(32))
        assert judge_probe(await probe(engine)).verdict == "Failed"
