"""Figures on disk: one JSON file each in `.local/figures`, so that any test can record one."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from e2e.figures.registry import FIGURES

FOLDER = Path(os.environ.get("FLEETWARD_FIGURES", ".local/figures"))
"""Where figures lie; relative to the checkout unless `FLEETWARD_FIGURES` names a folder."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A measured value, what it was compared with in the same run, and when it was taken (UTC)."""

    name: str
    value: float
    detail: str
    at: str


def record(name: str, value: float, detail: str = "", *, folder: Path = FOLDER) -> Measured:
    """Keep `value` for figure `name`; raises `KeyError` for a name that the registry lacks."""
    if name not in {figure.name for figure in FIGURES}:
        raise KeyError(f"{name!r} is no figure of e2e/figures/registry/")
    at = datetime.now(UTC).isoformat(timespec="seconds")
    measured = Measured(name=name, value=float(value), detail=detail, at=at)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name}.json"
    scratch = target.with_suffix(".tmp")
    scratch.write_text(json.dumps(asdict(measured)) + "\n")
    scratch.replace(target)
    return measured


def recall(name: str, *, folder: Path = FOLDER) -> Measured | None:
    """The last measured value of figure `name`, or None when it has not been measured here."""
    path = folder / f"{name}.json"
    return Measured(**json.loads(path.read_text())) if path.exists() else None
