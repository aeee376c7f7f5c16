"""What `make figures` says about missing, kept and missed promises."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.figures.figure import Figure
from e2e.figures.record import Measured, recall, record
from e2e.figures.registry import FIGURES
from e2e.figures.report import build_report

_SECONDS = Figure("idle-writes", "a promise", "<=", 3.0, "s", "make it")


def _measured(value: float) -> Measured:
    return Measured(name="idle-writes", value=value, detail="", at="2026-01-01T00:00:00+00:00")


def test_names_are_unique_and_commands_are_make_targets() -> None:
    makefile = Path("Makefile").read_text()
    assert len({figure.name for figure in FIGURES}) == len(FIGURES)
    for figure in FIGURES:
        assert f"\n{figure.command.removeprefix('make ')}:" in makefile, figure.command


def test_a_missing_figure_is_named_and_fails() -> None:
    report = build_report([_SECONDS], lambda _: None)
    assert report.missing == ("idle-writes",)
    assert not report.ok


def test_a_missed_figure_is_named_and_fails() -> None:
    report = build_report([_SECONDS], lambda _: _measured(3.5))
    assert report.missed == ("idle-writes",)
    assert not report.ok


def test_a_kept_figure_is_ok() -> None:
    assert build_report([_SECONDS], lambda _: _measured(3.0)).ok


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_a_bound_holds_for_just_the_numbers_below_it(value: float) -> None:
    assert _SECONDS.holds(value) == (value <= 3.0)


def test_what_is_recorded_is_recalled(tmp_path: Path) -> None:
    record("idle-writes", 0, "20 services", folder=tmp_path)
    recalled = recall("idle-writes", folder=tmp_path)
    assert recalled is not None
    assert (recalled.value, recalled.detail) == (0.0, "20 services")


def test_an_unknown_figure_cannot_be_recorded(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="no figure"):
        record("made-up", 1, folder=tmp_path)


def test_an_unmeasured_figure_is_none(tmp_path: Path) -> None:
    assert recall("idle-writes", folder=tmp_path) is None
