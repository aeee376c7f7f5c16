"""Figures of who owns which field and what deletion leaves behind."""

from e2e.figures.figure import Figure

CHAOS = "make chaos"

FIGURES: tuple[Figure, ...] = (
    Figure(
        "foreign-field-reverts",
        "writes to children after others added labels, annotations, a sidecar, a variable",
        *("==", 0, "writes", CHAOS),
        promises=(12,),
    ),
    Figure(
        "foreign-field-loops",
        "passes over a service in 20 s once foreign additions have settled",
        *("==", 0, "passes", CHAOS),
        promises=(12,),
    ),
    Figure(
        "owned-field-reverted",
        "slowest revert of an edit of an owned field, each child edited",
        *("<=", 30, "s", CHAOS),
        promises=(13,),
    ),
    Figure(
        "owned-field-authors",
        "such edits without an Event that names field and manager",
        *("==", 0, "edits", CHAOS),
        promises=(13,),
    ),
    Figure(
        "contested-field-writes",
        "our writes for each foreign write of somebody who keeps changing an owned field",
        *("<=", 0.5, "writes", CHAOS),
        promises=(9,),
    ),
    Figure(
        "contested-field-events",
        "Events about a fight of a minute by 40 authors",
        *("<=", 10, "Events", CHAOS),
        promises=(13,),
    ),
    Figure(
        "contested-field-healed",
        "last revert after the last foreign write of a fight",
        *("<=", 30, "s", CHAOS),
        promises=(13,),
    ),
    *(
        Figure(
            f"namespace-gone-operator-{operator}",
            f"a deleted namespace with 20 services is gone, operator {operator}",
            *("<=", 120, "s", CHAOS),
            promises=(promise,),
        )
        for operator, promise in (("up", 14), ("down", 14), ("uninstalled", 15))
    ),
    Figure(
        "service-deletion-orphans",
        "objects left 60 s after 20 services were deleted, by label and by owner",
        *("==", 0, "objects", CHAOS),
        promises=(16,),
    ),
    Figure(
        "tenant-deletion",
        "slowest of 20 Tenants from deletion to gone with verified evidence",
        *("<=", 60, "s", CHAOS),
        promises=(44,),
    ),
    Figure(
        "tenant-deletion-unproved",
        "of them, gone without Completed and verified evidence",
        *("==", 0, "Tenants", CHAOS),
        promises=(44,),
    ),
)
