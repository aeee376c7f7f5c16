"""The table that `make figures` prints, and its verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.table import Table

from e2e.figures.figure import Figure
from e2e.figures.record import Measured


@dataclass(frozen=True, slots=True)
class Report:
    """A rendered table and whether every figure is there and holds."""

    table: Table
    missing: tuple[str, ...]
    missed: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """True when nothing is missing and nothing missed its target."""
        return not self.missing and not self.missed


def build_report(figures: Sequence[Figure], recall: Callable[[str], Measured | None]) -> Report:
    """Compare each figure with what was measured; the order is the registry's."""
    table = Table("figure", "target", "measured", "verdict", "detail", "measured by")
    missing: list[str] = []
    missed: list[str] = []
    for figure in figures:
        measured = recall(figure.name)
        target = f"{figure.comparison} {figure.target:g} {figure.unit}".strip()
        if measured is None:
            missing.append(figure.name)
            table.add_row(figure.promise, target, "-", "[red]missing[/red]", "", figure.command)
            continue
        holds = figure.holds(measured.value)
        if not holds:
            missed.append(figure.name)
        verdict = "[green]holds[/green]" if holds else "[red]missed[/red]"
        table.add_row(
            figure.promise, target, f"{measured.value:g}", verdict, measured.detail, figure.command
        )
    return Report(table=table, missing=tuple(missing), missed=tuple(missed))
