"""Figures of who owns which field and what deletion leaves behind."""

from e2e.figures.figure import Figure

FIGURES: tuple[Figure, ...] = ()
