"""Figures of the deletion protocol: explored states, real pods, evidence."""

from e2e.figures.figure import Figure

_CHAOS = "make chaos"

FIGURES: tuple[Figure, ...] = (
    Figure(
        name="evidence-mutations-missed",
        promise="10,000 mutated evidence files: not caught, or another record named first",
        comparison="==",
        target=0,
        unit="files",
        command=_CHAOS,
        promises=(44,),
    ),
)
