"""Loading takes the memory of the model and of one tensor, whatever context the model claims."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Self

import torch

from fleetward_engine.loading import load_model
from fleetward_engine.model_source import resolve
from tests.support.checkpoints import make_config, make_weights, write_checkpoint

MIB = 1 << 20


def anonymous_bytes() -> int:
    """Memory of this process that no file stands behind."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


class Peak:
    """The largest reading while the context lasts."""

    def __init__(self) -> None:
        self.start = self.value = anonymous_bytes()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.001):
            self.value = max(self.value, anonymous_bytes())


def test_a_model_is_loaded_one_tensor_at_a_time(tmp_path: Path) -> None:
    # A long context costs nothing before a request uses it.
    config = make_config(
        hidden_size=512, intermediate_size=1024, num_hidden_layers=10, head_dim=128,
        max_position_embeddings=1 << 24,
    )  # fmt: skip
    weights = {name: value.float() for name, value in make_weights(config).items()}
    size = sum(value.nbytes for value in weights.values())
    write_checkpoint(tmp_path, config, weights, shards=3)
    del weights
    assert size > 90 * MIB
    resolved = resolve(f"file://{tmp_path}")
    with Peak() as peak:
        loaded = load_model(resolved, dtype=torch.float32, device=torch.device("cpu"))
    # The largest piece, gate and up in one, has 4 MiB; so has what comes and goes beside it.
    assert peak.value - peak.start < size + 12 * MIB
    assert loaded.model.config.num_layers == 10
