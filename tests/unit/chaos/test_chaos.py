"""What `make chaos` remembers, and what its table says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from e2e.chaos.progress import Progress
from e2e.chaos.report import build_verdicts
from e2e.chaos.steps import STEPS
from e2e.figures.figure import Figure
from e2e.figures.record import Measured
from e2e.figures.registry import FIGURES

KEPT = Figure("a", "one", "==", 0, "writes", "make it", promises=(3, 1))
PLAIN = Figure("b", "two", "==", 0, "writes", "make it")


def measured(value: float) -> Measured:
    return Measured("a", value, "", "2026-01-01T00:00:00+00:00")


def test_a_stopped_run_goes_on_where_it_was(tmp_path: Path) -> None:
    Progress.of("c1", 7, folder=tmp_path).add("first")
    again = Progress.of("c1", 7, folder=tmp_path)
    again.add("second")
    assert again.passed() == {"first", "second"}


@pytest.mark.parametrize(("code", "seed"), [("c2", 7), ("c1", 8)])
def test_other_code_or_another_seed_starts_over(tmp_path: Path, code: str, seed: int) -> None:
    Progress.of("c1", 7, folder=tmp_path).add("first")
    assert Progress.of(code, seed, folder=tmp_path).passed() == frozenset()


def test_forgetting_starts_over(tmp_path: Path) -> None:
    progress = Progress.of("c1", 7, folder=tmp_path)
    progress.add("first")
    progress.forget()
    assert progress.passed() == frozenset()


@pytest.mark.parametrize(("value", "failed"), [(0, 0), (1, 2), (float("nan"), 2)])
def test_each_promise_of_a_figure_is_a_row_with_its_verdict(value: float, failed: int) -> None:
    verdicts = build_verdicts([KEPT, PLAIN], lambda _: measured(value))
    assert verdicts.failed == failed
    assert list(verdicts.table.columns[0].cells) == ["1", "3"]


def test_a_figure_that_was_not_measured_fails() -> None:
    assert build_verdicts([KEPT], lambda _: None).failed == 2


def test_steps_are_bounded_name_real_tests_and_known_figures() -> None:
    known = {figure.name for figure in FIGURES}
    assert len({step.name for step in STEPS}) == len(STEPS)
    for step in STEPS:
        assert 0 < step.limit_s <= 5400, step.name
        assert set(step.figures) <= known, step.name
        for target in step.tests:
            assert Path(target.partition("::")[0]).exists(), target


def test_each_figure_that_chaos_measures_has_its_step() -> None:
    measured_by_steps = {name for step in STEPS for name in step.figures}
    for figure in FIGURES:
        assert (figure.command == "make chaos") == (figure.name in measured_by_steps), figure.name


def test_each_number_that_a_figure_keeps_is_promised_in_words() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", Path("docs/promises.md").read_text(), re.MULTILINE)
    promised = {int(number) for number, words in rows if words}
    assert {number for figure in FIGURES for number in figure.promises} <= promised
