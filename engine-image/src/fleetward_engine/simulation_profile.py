"""How long the simulated runner takes: a few measured numbers in a JSON file."""

from __future__ import annotations

import json
from bisect import bisect_left
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from fleetward_engine.errors import ConfigInvalid

_MAX_STEP_MS = 1_000_000


class SimulationProfile(BaseModel):
    """Timing and size of an engine, as its benchmark measured them.

    The defaults are SmolLM2-135M in bfloat16 on two Zen 4 cores: tokens a second of prefill,
    milliseconds of one decode step by batch size, and KV bytes of one token
    (2 x 30 layers x 3 KV heads x 64 x 2 bytes).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    prefill_tokens_per_second: float = Field(default=1000.0, gt=0)
    decode_step_ms: dict[int, float] = {1: 32.0, 8: 43.0, 32: 78.0}
    kv_bytes_per_token: int = Field(default=23_040, ge=1)
    max_model_len: int = Field(default=8192, ge=2)

    @field_validator("decode_step_ms")
    @classmethod
    def _positive(cls, steps: dict[int, float]) -> dict[int, float]:
        if not steps or any(batch < 1 or not 0 <= ms < _MAX_STEP_MS for batch, ms in steps.items()):
            raise ValueError("needs at least one batch size, sizes from 1, times from 0 ms")
        return dict(sorted(steps.items()))

    def step_seconds(self, *, prefill_tokens: int, decode_rows: int) -> float:
        """Duration of one step; decode times are interpolated between measured batch sizes."""
        seconds = prefill_tokens / self.prefill_tokens_per_second
        return seconds + self._decode_ms(decode_rows) / 1000 if decode_rows else seconds

    def _decode_ms(self, rows: int) -> float:
        sizes = list(self.decode_step_ms)
        upper = bisect_left(sizes, rows)
        if upper == 0:
            return self.decode_step_ms[sizes[0]]
        if upper == len(sizes):
            # Beyond the largest measured batch a step costs in proportion: no batch is free.
            return self.decode_step_ms[sizes[-1]] * rows / sizes[-1]
        low, high = sizes[upper - 1], sizes[upper]
        share = (rows - low) / (high - low)
        return self.decode_step_ms[low] * (1 - share) + self.decode_step_ms[high] * share


def load_profile(path: Path | None) -> SimulationProfile:
    """The profile in a file, or the default one.

    Raises:
        ConfigInvalid: the file can't be read or holds something else; the message says what.
    """
    if path is None:
        return SimulationProfile()
    try:
        return SimulationProfile.model_validate(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, ValidationError) as fault:
        raise ConfigInvalid(f"simulation profile {path}: {fault}") from fault
