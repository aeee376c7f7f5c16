"""Figures of the order in which an engine takes its requests."""

from e2e.figures.figure import Figure

COMMAND = "make bench-scheduling"

FIGURES: tuple[Figure, ...] = (
    Figure(
        "fairness-share-error",
        "weights 1 and 3, both always wait: off by",
        "<=",
        5,
        "%",
        COMMAND,
    ),
    Figure(
        "fairness-throughput",
        "the same, beside first come first served: weighted tokens",
        ">=",
        95,
        "%",
        COMMAND,
    ),
)
