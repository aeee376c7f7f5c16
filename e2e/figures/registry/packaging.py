"""Figures of installing, testing and upgrading the release."""

from e2e.figures.figure import Figure

FIGURES: tuple[Figure, ...] = ()
