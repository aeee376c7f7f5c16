"""The table of `make chaos`: promise, figure, verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.table import Table

from e2e.figures.figure import Figure
from e2e.figures.record import Measured


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The rendered table, and how many figures are missing or missed."""

    table: Table
    failed: int


def build_verdicts(figures: Sequence[Figure], recall: Callable[[str], Measured | None]) -> Verdicts:
    """One row for each figure that keeps a numbered promise, in the order of the numbers."""
    table = Table("promise", "what", "target", "figure", "verdict")
    failed = 0
    rows = [(number, figure) for figure in figures for number in figure.promises]
    for number, figure in sorted(rows, key=lambda row: row[0]):
        measured = recall(figure.name)
        holds = measured is not None and figure.holds(measured.value)
        failed += not holds
        table.add_row(
            str(number),
            figure.promise,
            f"{figure.comparison} {figure.target:g} {figure.unit}".strip(),
            "-" if measured is None else f"{measured.value:g}",
            "[green]kept[/green]" if holds else f"[red]{'missed' if measured else 'missing'}[/red]",
        )
    return Verdicts(table, failed)
