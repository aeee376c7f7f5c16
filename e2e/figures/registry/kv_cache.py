"""Figures of the KV cache: who holds how much of it, and what governing it costs."""

from e2e.figures.figure import Figure

_BENCH = "make bench-cache"

FIGURES: tuple[Figure, ...] = (
    Figure(
        name="state-machine-steps",
        promise="random events on pool, index, shares and engine, checked after each",
        comparison=">=",
        target=100_000,
        unit="events",
        command="make test-fire",
    ),
    Figure(
        name="flood-hit-loss",
        promise="one tenant inserts as fast as it can: another's hit rate inside its floor falls",
        comparison="<=",
        target=2,
        unit="points",
        command=_BENCH,
    ),
    Figure(
        name="cache-overhead",
        promise="scheduler, block pool and prefix index: part of a step of 32 sequences",
        comparison="<=",
        target=5,
        unit="%",
        command=_BENCH,
    ),
    Figure(
        name="isolation-cost",
        promise="a declared system prompt: work for many tenants above that for one with the same",
        comparison="<=",
        target=2,
        unit="%",
        command=_BENCH,
    ),
    Figure(
        name="block-cost-ratio",
        promise="cost of a block in a pool of a million blocks to that in one of a thousand",
        comparison="<=",
        target=5,
        unit="x",
        command=_BENCH,
    ),
    Figure(
        name="host-reload",
        promise="prefix of 64 to 2048 tokens loaded from host memory, encrypted, to computing it: "
        "the worst length of those that the cost test had loaded",
        comparison="<=",
        target=1,
        unit="x",
        command=_BENCH,
    ),
)
