"""Figures of the release on real pods while it is killed, paused and rolled."""

from e2e.figures.figure import Figure

_CHAOS = "make chaos"

FIGURES: tuple[Figure, ...] = (
    Figure(
        name="storm-seconds",
        promise="100 kills -9 of operators while 20 services roll out: converged after the last",
        comparison="<=",
        target=30,
        unit="s",
        command=_CHAOS,
        promises=(1,),
    ),
    Figure(
        name="storm-lost-requests",
        promise="requests lost by the clients of those services meanwhile",
        comparison="==",
        target=0,
        unit="requests",
        command=_CHAOS,
        promises=(1,),
    ),
    Figure(
        name="storm-orphans-duplicates",
        promise="orphans and duplicates after those kills",
        comparison="==",
        target=0,
        unit="objects",
        command=_CHAOS,
        promises=(1,),
    ),
    Figure(
        name="pairs-at-once-cross-hits",
        promise="1,000 paired prompts of two tenants: the other tenant reads cached tokens",
        comparison="==",
        target=0,
        unit="of 1000",
        command=_CHAOS,
        promises=(40,),
    ),
    Figure(
        name="purge-events-violations",
        promise="purges on pods that are killed, paused, scaled: violations of S1-S4, L1 in 40",
        comparison="==",
        target=0,
        unit="violations",
        command=_CHAOS,
        promises=(45,),
    ),
)
