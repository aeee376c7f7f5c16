"""Figures of an API server that refuses, hangs, forgets, throttles or fails."""

from e2e.figures.figure import Figure

FIGURES: tuple[Figure, ...] = ()
