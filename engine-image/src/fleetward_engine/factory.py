"""From a configuration to a running engine; torch is imported only for the torch runner."""

from __future__ import annotations

import hashlib
import importlib
import os
import time
from collections.abc import Callable

from fleetward_api.admin import ModelState
from fleetward_api.cache_key import ModelFingerprint
from fleetward_engine.config import EngineConfig
from fleetward_engine.engine import Engine
from fleetward_engine.errors import ConfigInvalid
from fleetward_engine.simulated_runner import SimulatedRunner
from fleetward_engine.simulation_profile import load_profile
from fleetward_engine.tokenizer import ByteTokenizer
from fleetward_engine.version import engine_version

_DEFAULT_SIMULATED_KV_BYTES = 1 << 30


def build_engine(
    config: EngineConfig, clock: Callable[[], float] = time.monotonic
) -> tuple[Engine, ModelState]:
    """Load the model (or the simulation) and put an engine around it.

    Raises:
        ConfigInvalid, ModelUnavailable, ModelUnsupported: with what to change.
    """
    if config.runner == "simulated":
        return _simulated(config, clock)
    # Read by OpenMP when torch is loaded. Its threads would otherwise spin while they wait, and
    # where CPUs are shared that slows a step 10 times.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # Imported by name so that an image without torch can still run the simulated runner.
    try:
        importlib.import_module("torch")
    except ImportError:
        raise ConfigInvalid(
            "runner 'torch' needs torch, which is not installed: "
            "install fleetward-engine[torch] or use runner 'simulated'"
        ) from None
    from fleetward_engine.torch_factory import build_torch_engine  # noqa: PLC0415

    return build_torch_engine(config, clock)


def fingerprint_of(state: ModelState) -> ModelFingerprint:
    """The part of the cache root that the model decides."""
    return ModelFingerprint(
        model_digest=state.model_digest,
        adapter_digest=state.adapter_digest,
        tokenizer_digest=state.tokenizer_digest,
        kv_layout=state.kv_layout,
    )


def _simulated(config: EngineConfig, clock: Callable[[], float]) -> tuple[Engine, ModelState]:
    profile = load_profile(config.simulation_profile)
    memory = config.kv_cache_memory_bytes or _DEFAULT_SIMULATED_KV_BYTES
    num_blocks = memory // (profile.kv_bytes_per_token * config.block_size)
    if num_blocks < 1:
        raise ConfigInvalid(f"kv_cache_memory_bytes {memory} holds not even one simulated block")
    runner = SimulatedRunner(
        profile, num_blocks=num_blocks, block_size=config.block_size, sleep=time.sleep
    )
    state = ModelState(
        model_digest=_digest_of(f"simulated model {profile.model_dump_json()}"),
        tokenizer_digest=_digest_of("byte tokenizer 1"),
        chat_template_digest=_digest_of("byte chat marks 1"),
        engine_version=engine_version(),
        kv_layout=runner.kv_layout,
        runner="simulated",
    )
    return Engine(config, runner, ByteTokenizer(), clock), state


def _digest_of(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
