"""What an engine is told at start; every value is checked here, once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fleetward_engine.admission.limits import ADMIT_ALL, AdmissionLimits
from fleetward_engine.errors import ConfigInvalid
from fleetward_engine.scheduling.policy import FCFS, SchedulingPolicy

Runner = Literal["torch", "simulated"]
Dtype = Literal["auto", "bfloat16", "float32", "float64"]
KvCacheDtype = Literal["auto", "int8"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Settings of one engine; the names are those that vLLM's users already type.

    `max_model_len` None means the model's own context length. `kv_cache_memory_bytes` None lets
    the runner choose: what is left of an accelerator's memory, or of the container's where the
    engine `owns_container`; a gibibyte, or what is left, where others share the memory. `dtype`
    "auto" is bfloat16 where the device has instructions for it, else float32; "float64" is for
    tests against references. `kv_cache_dtype`
    "auto" keeps keys and values in the model's own numbers. `verify_kv` compares each cached block
    at every use with what it held when it was cached (`canary.py`).
    `host_kv_cache_memory_bytes` is for blocks that leave the device (`host_tier`), 0 for no tier.
    `batch_invariant` computes each token the same whatever else is in its batch; a simulated
    runner does so in any case.

    Raises:
        ConfigInvalid: a value is out of range or contradicts another; the message names both.
    """

    model_uri: str
    served_model_names: tuple[str, ...]
    model_digest: str | None = None
    runner: Runner = "torch"
    dtype: Dtype = "auto"
    kv_cache_dtype: KvCacheDtype = "auto"
    max_model_len: int | None = None
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 1024
    block_size: int = 32
    kv_cache_memory_bytes: int | None = None
    host_kv_cache_memory_bytes: int = 0
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    verify_kv: bool = False
    batch_invariant: bool = False
    scheduling: SchedulingPolicy = FCFS
    admission: AdmissionLimits = ADMIT_ALL
    owns_container: bool = False
    simulation_profile: Path | None = None

    def __post_init__(self) -> None:
        """Refuse what can't work before a model is loaded for it."""
        if not self.served_model_names:
            raise ConfigInvalid("no served model name: give --served-model-name at least once")
        for name in ("max_num_seqs", "max_num_batched_tokens", "block_size"):
            _require_positive(name, getattr(self, name))
        for name in ("max_model_len", "kv_cache_memory_bytes"):
            if getattr(self, name) is not None:
                _require_positive(name, getattr(self, name))
        if self.host_kv_cache_memory_bytes < 0:
            raise ConfigInvalid(
                "host_kv_cache_memory_bytes must be 0 (no host tier) or more, "
                f"not {self.host_kv_cache_memory_bytes}"
            )
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ConfigInvalid(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least "
                f"max_num_seqs ({self.max_num_seqs}): each running request decodes one token a step"
            )
        if self.kv_cache_dtype != "auto" and self.runner != "torch":
            raise ConfigInvalid(
                f"kv_cache_dtype {self.kv_cache_dtype!r} needs runner 'torch': "
                "a simulation keeps no keys and values"
            )
        if self.simulation_profile is not None and self.runner != "simulated":
            raise ConfigInvalid("simulation_profile needs runner 'simulated'")


def _require_positive(name: str, value: int) -> None:
    if value < 1:
        raise ConfigInvalid(f"{name} must be at least 1, not {value}")
