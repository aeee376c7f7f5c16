"""Figures of an engine that is killed, starved, cut off or fed nonsense."""

from e2e.figures.figure import Figure

FIGURES: tuple[Figure, ...] = ()
