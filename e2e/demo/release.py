"""The chart, installed or upgraded on the local cluster."""

from __future__ import annotations

import json
from pathlib import Path

from e2e.cluster.errors import CommandFailed
from e2e.demo.place import RELEASE_NAMESPACE, Place
from e2e.images.plan import ImageSet

RELEASE = "fleetward"
CHART = "charts/fleetward"
VALUES = Path(__file__).with_name("values.yaml")
TIMEOUT = "180s"
NAMESPACE_MANIFEST = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {
        "name": RELEASE_NAMESPACE,
        "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
    },
}


def deploy(place: Place, images: ImageSet, *, settings: tuple[str, ...] = ()) -> None:
    """Install or upgrade the release and wait until operator and gateway are ready.

    Args:
        place: the running cluster.
        images: what to run.
        settings: further ``--set`` arguments of helm.
    """
    place.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(NAMESPACE_MANIFEST))
    mend(place)
    place.helm(*upgrade_words(place.paths.checkout, images, settings=settings))


def upgrade_words(checkout: Path, images: ImageSet, *, settings: tuple[str, ...] = ()) -> list[str]:
    """The arguments of ``helm upgrade``."""
    tags = {"image.tag": tag_of(images.operator), "engine.image.tag": tag_of(images.engine)}
    pairs = [f"{name}={value}" for name, value in tags.items()] + list(settings)
    chosen = [word for pair in pairs for word in ("--set", pair)]
    where = ["--namespace", RELEASE_NAMESPACE, "--values", str(VALUES)]
    how = ["--install", "--wait", "--timeout", TIMEOUT, "--history-max", "3"]
    return ["upgrade", RELEASE, str(checkout / CHART), *where, *how, *chosen]


def tag_of(reference: str) -> str:
    """The tag of an image reference."""
    return reference.rpartition(":")[2]


def mend(place: Place) -> None:
    """Undo what a killed helm left half done: helm itself refuses to go on from there."""
    try:
        found = place.helm("status", RELEASE, "--namespace", RELEASE_NAMESPACE, "-o", "json")
    except CommandFailed as error:
        if "not found" in str(error):
            return
        raise
    document = json.loads(found)
    status, revision = str(document["info"]["status"]), int(document["version"])
    if not status.startswith("pending-"):
        return
    place.steps.tell(f"          the last helm run was cut off ({status}): undoing it")
    if status == "pending-install" or revision == 1:
        place.helm("uninstall", RELEASE, "--namespace", RELEASE_NAMESPACE)
    else:
        place.helm("rollback", RELEASE, "--namespace", RELEASE_NAMESPACE)
