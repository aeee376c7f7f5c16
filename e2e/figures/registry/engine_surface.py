"""Figures of what clients may send to an engine."""

from e2e.figures.figure import Figure

FIGURES: tuple[Figure, ...] = (
    Figure(
        "surface-fuzz-faults",
        "bodies made at random: engine exits and answers without OpenAI's shape",
        "==",
        0,
        "",
        "make chaos",
        promises=(35,),
    ),
)
