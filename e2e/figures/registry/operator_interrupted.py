"""Figures of the operator killed, paused, robbed of its lease: failpoints, kills, leadership."""

from e2e.figures.figure import Figure

FIGURES: tuple[Figure, ...] = ()
