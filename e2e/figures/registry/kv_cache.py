"""Figures of the KV cache: who holds how much of it, and what governing it costs."""

from e2e.figures.figure import Figure

FIGURES: tuple[Figure, ...] = (
    Figure(
        name="state-machine-steps",
        promise="random events on pool, index, shares and engine, checked after each",
        comparison=">=",
        target=100_000,
        unit="events",
        command="make test-fire",
    ),
)
