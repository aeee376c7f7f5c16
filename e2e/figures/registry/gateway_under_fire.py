"""Figures of a gateway between dying backends and hostile clients."""

from e2e.figures.figure import Figure

FIGURES: tuple[Figure, ...] = ()
