"""What a service asks of admission."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fleetward_engine.errors import ConfigInvalid

_WHOLE_PERCENT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionLimits:
    """Beyond these a request is refused at once.

    Attributes:
        max_predicted_wait_s: longest predicted time in the queue; infinity: any.
        kv_headroom_percent: part of the KV blocks that no admitted request may be expected to
            need; None: what is promised is not looked at. 0 promises all, and no more.

    Raises:
        ConfigInvalid: a value is out of range.
    """

    max_predicted_wait_s: float = math.inf
    kv_headroom_percent: int | None = None

    def __post_init__(self) -> None:
        """Refuse what would let nobody in or means nothing."""
        if not self.max_predicted_wait_s > 0:
            raise ConfigInvalid(
                f"max_predicted_wait must be above 0 s, not {self.max_predicted_wait_s}"
            )
        headroom = self.kv_headroom_percent
        if headroom is not None and not 0 <= headroom < _WHOLE_PERCENT:
            raise ConfigInvalid(f"kv_headroom_percent must be from 0 to 99, not {headroom}")


ADMIT_ALL = AdmissionLimits()
"""Whatever can ever be served is taken in."""
