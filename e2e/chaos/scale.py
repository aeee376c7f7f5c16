"""How much of a check runs: the short form in `make test`, the full one in `make chaos`."""

from __future__ import annotations

import os

_SEED = 20261130


def is_full() -> bool:
    """Whether this run measures figures in full (`FLEETWARD_FULL=1`)."""
    return os.environ.get("FLEETWARD_FULL") == "1"


def seed() -> int:
    """The seed of every random choice (`FLEETWARD_SEED`, a whole number)."""
    return int(os.environ.get("FLEETWARD_SEED", str(_SEED)))
