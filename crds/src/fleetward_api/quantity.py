"""Amounts and durations as Kubernetes users type them, turned into exact integers.

Amounts follow ``k8s.io/apimachinery`` resource quantities (plain integers, decimal and binary
suffixes, ``m`` for thousandths), durations follow Go's ``time.ParseDuration`` with the integer
units ``h``, ``m``, ``s`` and ``ms``. The patterns below are also those of the CRD schemas.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

QUANTITY_PATTERN: Final = r"^[0-9]{1,15}(\.[0-9]{1,3})?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
DURATION_PATTERN: Final = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"

_SUFFIX: Final = {
    "": Fraction(1),
    "m": Fraction(1, 1000),
    **{suffix: Fraction(1000 ** (power + 1)) for power, suffix in enumerate("kMGTP")},
    **{suffix + "i": Fraction(1024 ** (power + 1)) for power, suffix in enumerate("KMGTP")},
}
_UNIT_MS: Final = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_QUANTITY: Final = re.compile(QUANTITY_PATTERN[1:-1])
_DURATION: Final = re.compile(DURATION_PATTERN[1:-1])
_DURATION_PART: Final = re.compile(r"([0-9]+)(ms|h|m|s)")
_SPLIT: Final = re.compile(r"([0-9.]+)([a-zA-Z]*)")


def quantity_fraction(value: int | str) -> Fraction:
    """The exact amount that a quantity names.

    Args:
        value: a whole number, or text such as ``1Gi``, ``250m`` or ``1.5``.

    Raises:
        ValueError: the text is no quantity, or the number is negative.
    """
    if isinstance(value, int):
        if value < 0:
            raise ValueError(f"quantity {value} is negative: write 0 or more")
        return Fraction(value)
    if _QUANTITY.fullmatch(value) is None:
        raise ValueError(
            f"{value[:64]!r} is no quantity: write for example 500m, 2, 512Mi or 1.5Gi"
        )
    split = _SPLIT.fullmatch(value)
    if split is None:  # the pattern above admits only such text
        raise ValueError(f"{value[:64]!r} is no quantity")
    return Fraction(split[1]) * _SUFFIX[split[2]]


def parse_quantity(value: int | str) -> int:
    """A quantity in whole units (bytes for memory), rounded up as Kubernetes does.

    Raises:
        ValueError: as :func:`quantity_fraction`.
    """
    return _ceil(quantity_fraction(value))


def parse_milli_quantity(value: int | str) -> int:
    """A quantity in thousandths (``500m`` of CPU is 500), rounded up.

    Raises:
        ValueError: as :func:`quantity_fraction`.
    """
    return _ceil(quantity_fraction(value) * 1000)


def parse_duration(value: str) -> int:
    """A Go-style duration in milliseconds: ``1h30m`` is 5,400,000.

    Raises:
        ValueError: the text is no such duration.
    """
    if _DURATION.fullmatch(value) is None:
        raise ValueError(
            f"{value[:64]!r} is no duration: write for example 500ms, 30s, 10m or 1h30m"
        )
    return sum(int(count) * _UNIT_MS[unit] for count, unit in _DURATION_PART.findall(value))


def format_duration(milliseconds: int) -> str:
    """The shortest text that :func:`parse_duration` reads back as this many milliseconds.

    Raises:
        ValueError: negative, or 100,000 hours and more.
    """
    if not 0 <= milliseconds < 100_000 * _UNIT_MS["h"]:
        raise ValueError(f"{milliseconds} ms is outside what a duration can say (0 to 99999h)")
    parts: list[str] = []
    rest = milliseconds
    for unit, size in _UNIT_MS.items():
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _ceil(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)
