"""Figures of installing, checking and upgrading a release."""

from e2e.figures.figure import Figure

FIGURES: tuple[Figure, ...] = (
    Figure(
        name="upgrade-lost-requests",
        promise="requests lost or refused while the release is upgraded and rolled back",
        comparison="==",
        target=0,
        unit="requests",
        command="make chaos",
        promises=(18,),
    ),
    Figure(
        name="upgrade-engine-restarts",
        promise="engine pods, their Deployments or their Ready that an upgrade changed",
        comparison="==",
        target=0,
        unit="changes",
        command="make chaos",
        promises=(18,),
    ),
    Figure(
        name="helm-test-passed",
        promise="helm test passes on an installed release",
        comparison="==",
        target=1,
        unit="",
        command="make chaos",
        promises=(18,),
    ),
    Figure(
        name="existing-cluster-story",
        promise="CLUSTER=existing: make up tells its whole story, make down keeps definitions",
        comparison="==",
        target=1,
        unit="",
        command="make chaos",
        promises=(18,),
    ),
)
