"""Whether loading a prefix from host memory beats computing it again. Plain numbers, no clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

DECAY: Final = 0.9
"""Of what was measured before, at each new measurement: about the last ten count."""
MAX_LOAD_S: Final = 0.25
"""Longest time that one request's load may hold up a step."""


@dataclass(slots=True)
class Rate:
    """Amount per second, lately: sums that fade, so that long measurements weigh more."""

    _amount: float = 0.0
    _seconds: float = 0.0

    @property
    def value(self) -> float | None:
        """None before anything was measured."""
        return self._amount / self._seconds if self._seconds else None

    def observe(self, amount: float, seconds: float) -> None:
        """One measurement; what took no time tells nothing."""
        if amount > 0 and seconds > 0:
            self._amount = self._amount * DECAY + amount
            self._seconds = self._seconds * DECAY + seconds


@dataclass(slots=True)
class LoadRates:
    """How fast blocks moved here, in bytes a second: out of host memory, and into it."""

    loaded_bytes: Rate = field(default_factory=Rate)
    stored_bytes: Rate = field(default_factory=Rate)

    @property
    def load_bytes_per_s(self) -> float | None:
        """Until something was loaded, as fast as storing: the same bytes, the other way."""
        return self.loaded_bytes.value or self.stored_bytes.value


def blocks_worth_loading(
    found: int,
    *,
    block_bytes: int,
    block_tokens: int,
    load_bytes_per_s: float | None,
    prefill_s_per_token: float,
) -> int:
    """How many of the `found` blocks, the first ones, to load instead of computing them.

    All that a step may wait for (`MAX_LOAD_S`) where loading is the faster, none where it is not.
    A rate that nobody has measured yet does not stop it: loading once is how it becomes known.

    Args:
        found: blocks that the prefix goes on with, in order.
        block_bytes: bytes to move one.
        block_tokens: tokens to compute one instead.
        load_bytes_per_s: measured; None when unknown.
        prefill_s_per_token: seconds to compute one more prompt token; 0 when unknown.
    """
    if load_bytes_per_s is None:
        return found
    load_s = block_bytes / load_bytes_per_s
    if 0 < block_tokens * prefill_s_per_token <= load_s:
        return 0
    return min(found, max(1, int(MAX_LOAD_S / load_s)))
