"""JSON files of a checkpoint: bounded, strict, and taken apart by kind."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from fleetward_engine.errors import ModelUnavailable, ModelUnsupported, one_line

_SHOWN = 40
"""Characters of a wrong value that a fault repeats."""


@dataclass(frozen=True, slots=True)
class JsonObject:
    """One object of a file; `at` is its place there. `null` counts as absent.

    Every fault is a `ModelUnsupported` that names the file and the field.
    """

    path: Path
    values: Mapping[str, object]
    at: str = ""

    def get(self, name: str) -> object | None:
        """A value as it stands there."""
        return self.values.get(name)

    def integer(self, name: str, *, low: int, high: int, default: int | None = None) -> int:
        """A whole number from `low` to `high`."""
        value = self._present(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self._refuse(name, f"a whole number from {low} to {high}", value)
        return value

    def number(self, name: str, *, default: float | None = None) -> float:
        """A finite number above 0."""
        value = self._present(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._refuse(name, "a number", value)
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not 0 < number < math.inf:
            self._refuse(name, "a finite number above 0", value)
        return number

    def flag(self, name: str, *, default: bool | None = None) -> bool:
        """A truth value."""
        value = self._present(name, default)
        if not isinstance(value, bool):
            self._refuse(name, "true or false", value)
        return value

    def text(self, name: str, *, default: str | None = None) -> str:
        """A text."""
        value = self._present(name, default)
        if not isinstance(value, str):
            self._refuse(name, "a text", value)
        return value

    def section(self, name: str) -> JsonObject | None:
        """An object inside this one."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            self._refuse(name, "an object", value)
        return JsonObject(self.path, value, f"{self.at}{name}.")

    def items(self, name: str) -> list[object]:
        """A list; empty where there is none."""
        value = self.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            self._refuse(name, "a list", value)
        return value

    def refuse(self, name: str, words: str) -> NoReturn:
        """Say that what the field asks for has no code here."""
        raise ModelUnsupported(f"{self.path}: {self.at}{name} {words}")

    def _present(self, name: str, default: object | None) -> object:
        value = self.get(name)
        if value is None:
            value = default
        if value is None:
            self.refuse(name, "is missing")
        return value

    def _refuse(self, name: str, wanted: str, value: object) -> NoReturn:
        shown = repr(value)[:_SHOWN]
        self.refuse(name, f"must be {wanted}, not {shown}")


def read_object(path: Path, *, max_bytes: int) -> JsonObject:
    """Read a file that holds one JSON object.

    Raises:
        ModelUnavailable: it is longer than `max_bytes`, no JSON, or says something twice.
    """
    with path.open("rb") as file:
        raw = file.read(max_bytes + 1)
    if len(raw) > max_bytes:
        raise ModelUnavailable(
            f"{path} is longer than {max_bytes} bytes, which no such file is: fetch it again"
        )
    try:
        values = json.loads(raw, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except (ValueError, RecursionError) as fault:
        raise ModelUnavailable(
            f"{path} can't be read as JSON, fetch it again: {one_line(fault)}"
        ) from fault
    if not isinstance(values, dict):
        raise ModelUnavailable(f"{path} must hold a JSON object: fetch it again")
    return JsonObject(path, values)


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"{twice[:_SHOWN]!r} stands there twice")
    return values


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
