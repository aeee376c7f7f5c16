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
    Figure(
        name="purge-violations",
        promise="purges explored in every order of events: states that break S1-S4, L1 or E1",
        comparison="==",
        target=0,
        unit="states",
        command=_CHAOS,
    ),
    Figure(
        name="purge-states-explored",
        promise="purges explored: different states, each bound exhausted",
        comparison=">=",
        target=150_000,
        unit="states",
        command=_CHAOS,
    ),
    Figure(
        name="purge-mutants-missed",
        promise="faults put into the transition of purges: not found",
        comparison="==",
        target=0,
        unit="mutants",
        command=_CHAOS,
    ),
)
