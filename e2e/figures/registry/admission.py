"""Figures of what an engine takes in."""

from e2e.figures.figure import Figure

FIGURES: tuple[Figure, ...] = (
    Figure(
        "admission-wait-factor",
        "predicted beside real waits in an overloaded queue: the median is off by a factor of",
        "<=",
        2,
        "",
        "make bench-admission",
    ),
)
