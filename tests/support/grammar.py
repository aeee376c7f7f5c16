"""Reading the masks of a grammar."""

from __future__ import annotations

import numpy as np


def tokens_of(mask: bytes) -> list[int]:
    """The tokens that a mask allows."""
    bits = np.unpackbits(np.frombuffer(mask, dtype=np.uint8), bitorder="little")
    tokens: list[int] = np.flatnonzero(bits).tolist()
    return tokens
