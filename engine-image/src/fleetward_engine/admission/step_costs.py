"""What a step costs, learned from the steps that ran."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

BEST_OF_STEPS: Final = 256
"""The lower bound takes the best rate of prompt tokens of this many steps."""

_KEEP: Final = 1 - 1 / 128
"""What each step leaves of the weight of those before it: averages over about 128 steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Steps to run, and in all of them together: prompt tokens, and rows that decode a token."""

    steps: float
    prefill_tokens: float
    decode_rows: float


class StepCosts:
    """Seconds of steps: so much each, and for each decoding row, and for each prompt token.

    Decoding is learned from steps without prompt tokens, as a line over the number of rows; the
    prefill rate from the others, less what their decodes cost. Each is forgotten only as new steps
    of its kind come: a long stretch of decodes leaves the prefill rate as it was. Before the first
    step everything costs nothing, so that nobody is refused on a guess.
    """

    def __init__(self) -> None:
        self._decodes = _Line()
        self._prefill_tokens = 0.0
        self._prefill_seconds = 0.0
        self._rates: deque[float] = deque(maxlen=BEST_OF_STEPS)

    @property
    def seconds_per_prefill_token(self) -> float:
        """The inverse of the prefill rate; 0 before any is known."""
        return self._prefill_seconds / self._prefill_tokens if self._prefill_tokens else 0.0

    def observe(self, *, prefill_tokens: int, decode_rows: int, seconds: float) -> None:
        """Take note of a step. One that took no time says nothing and is left out."""
        if seconds <= 0:
            return
        if not prefill_tokens:
            self._decodes.add(decode_rows, seconds)
            return
        self._rates.append(prefill_tokens / seconds)
        step, row = self._decodes.fit()
        # Where it was faster than its decodes alone were lately, the prompt still cost something.
        rest = max(seconds / 10, seconds - step - row * decode_rows)
        self._prefill_tokens = self._prefill_tokens * _KEEP + prefill_tokens
        self._prefill_seconds = self._prefill_seconds * _KEEP + rest

    def expected_s(self, load: Load) -> float:
        """How long a load takes, as steps were lately."""
        step, row = self._decodes.fit()
        decoding = step * load.steps + row * load.decode_rows
        return decoding + self.seconds_per_prefill_token * load.prefill_tokens

    def at_least_s(self, prefill_tokens: int) -> float:
        """A time that so many prompt tokens surely take: at the best rate lately seen."""
        return prefill_tokens / max(self._rates) if self._rates else 0.0


class _Line:
    """A straight line through weighted points, the last of which weigh most."""

    def __init__(self) -> None:
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    def add(self, x: float, y: float) -> None:
        """Add a point of weight 1."""
        self._n = self._n * _KEEP + 1
        self._x = self._x * _KEEP + x
        self._y = self._y * _KEEP + y
        self._xx = self._xx * _KEEP + x * x
        self._xy = self._xy * _KEEP + x * y

    def fit(self) -> tuple[float, float]:
        """Height at 0 and slope, neither below 0; (0, 0) before the first point."""
        if not self._n:
            return 0.0, 0.0
        x, y = self._x / self._n, self._y / self._n
        spread = self._xx / self._n - x * x
        # Points at about one place say nothing of a slope, and rounding would say anything.
        slope = (self._xy / self._n - x * y) / spread if spread > 1e-6 * (1 + x * x) else 0.0
        slope = min(max(0.0, slope), y / x if x > 0 else 0.0)
        return max(0.0, y - slope * x), slope
