"""Figures of the deletion protocol: explored states, real pods, evidence."""

from e2e.figures.figure import Figure

FIGURES: tuple[Figure, ...] = ()
