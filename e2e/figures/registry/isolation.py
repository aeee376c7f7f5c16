"""Figures of isolation, lifetimes and deletion, on one engine."""

from e2e.figures.figure import Comparison, Figure

COMMAND = "make bench-isolation"


def _figure(name: str, promise: str, comparison: Comparison, target: float, unit: str) -> Figure:
    return Figure(name, promise, comparison, target, unit, COMMAND)


FIGURES: tuple[Figure, ...] = (
    _figure(
        "content-influence",
        "10,000 paired prompts: answers that another tenant's prompts changed, or its cache served",
        "==",
        0,
        "pairs",
    ),
    _figure(
        "never-saw-differences",
        "random histories after a purge, beside an engine that never saw the tenant: differ",
        "==",
        0,
        "histories",
    ),
)
