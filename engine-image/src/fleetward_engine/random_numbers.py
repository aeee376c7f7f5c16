"""Random numbers by counter: which one is drawn depends on what it is for, not on when."""

from __future__ import annotations

import hashlib

_BITS = 53


def uniform(*, seed: int, choice: int, index: int) -> float:
    """A number in [0, 1) for the `index`-th token of one choice under a seed.

    The same three numbers always give the same one, whatever else is in the batch and however
    often the request was preempted. (A keyed hash instead of a generator's state: Salmon et al.,
    "Parallel random numbers: as easy as 1, 2, 3", 2011.)
    """
    digest = hashlib.sha256(f"fleetward/sample/{seed}/{choice}/{index}".encode()).digest()
    return (int.from_bytes(digest[:8], "little") >> (64 - _BITS)) / (1 << _BITS)
