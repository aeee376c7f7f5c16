"""Figures of the operator killed, paused, robbed of its lease: failpoints, kills, leadership."""

from e2e.figures.figure import Figure

_CHAOS = "make chaos"

_FAILPOINTS = tuple(
    figure
    for story in ("create", "delete", "update", "policy", "purge")
    for figure in (
        Figure(
            name=f"failpoints-{story}-not-converged",
            promise=f"{story}: calls x before/after at which a kill or a delay changed the end",
            comparison="==",
            target=0,
            unit="points",
            command=_CHAOS,
            promises=(2,),
        ),
        Figure(
            name=f"failpoints-{story}-writes",
            promise=f"{story}: kills after which a second pass wrote",
            comparison="==",
            target=0,
            unit="points",
            command=_CHAOS,
            promises=(2,),
        ),
    )
)

_KILLS = (
    Figure(
        name="kills-converged-seconds",
        promise="100 kills -9 in a rollout of 20 services: converged after the last",
        comparison="<=",
        target=30,
        unit="s",
        command=_CHAOS,
        promises=(1,),
    ),
    Figure(
        name="kills-orphans",
        promise="children of no service after 100 kills -9",
        comparison="==",
        target=0,
        unit="objects",
        command=_CHAOS,
        promises=(1,),
    ),
    Figure(
        name="kills-duplicates",
        promise="objects beside each service's own children after 100 kills -9",
        comparison="==",
        target=0,
        unit="objects",
        command=_CHAOS,
        promises=(1,),
    ),
    Figure(
        name="kills-generations-moved",
        promise="children written anew by 20 kills -9 with unchanged specs",
        comparison="==",
        target=0,
        unit="objects",
        command=_CHAOS,
        promises=(1,),
    ),
)

_LEADERSHIP = (
    Figure(
        name="leader-changes",
        promise="leader changes: kill, SIGTERM, SIGSTOP, late write, cut line; clocks 10 min off",
        comparison=">=",
        target=100,
        unit="",
        command="make chaos",
        promises=(10, 50),
    ),
    Figure(
        name="leader-late-requests",
        promise="most requests that arrived after their sender's lease in one leader change",
        comparison="<=",
        target=1,
        unit="requests",
        command="make chaos",
        promises=(10,),
    ),
    Figure(
        name="leader-stale-writes",
        promise="writes of a replica without the lease that the API server accepted",
        comparison="==",
        target=0,
        unit="writes",
        command="make chaos",
        promises=(10, 50),
    ),
    Figure(
        name="leader-takeover-seconds",
        promise="slowest take-over, with the lease as it is delivered",
        comparison="<=",
        target=20,
        unit="s",
        command="make chaos",
        promises=(10,),
    ),
    Figure(
        name="leader-woken-writes",
        promise="writes of a woken leader before it had looked at the lease",
        comparison="==",
        target=0,
        unit="writes",
        command="make chaos",
        promises=(11,),
    ),
)

FIGURES: tuple[Figure, ...] = (*_FAILPOINTS, *_KILLS, *_LEADERSHIP)
