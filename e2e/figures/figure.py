"""One promised number and how to measure it again."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Comparison = Literal["<=", "<", ">=", "=="]

_COMPARE: dict[Comparison, Callable[[float, float], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    "==": operator.eq,
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One promised number.

    `name` is its key on disk, `promise` says what is measured, `unit` is the unit of `target`,
    `command` measures it again. `promises` are the numbers of docs/promises.md that it keeps.
    """

    name: str
    promise: str
    comparison: Comparison
    target: float
    unit: str
    command: str
    promises: tuple[int, ...] = ()

    def holds(self, value: float) -> bool:
        """Whether a measured `value` keeps the promise; NaN never does."""
        return _COMPARE[self.comparison](value, self.target)
