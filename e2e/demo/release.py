"""The chart, installed or upgraded on the local cluster."""

from __future__ import annotations

import json
from pathlib import Path

from e2e.cluster.errors import CommandFailed
from e2e.demo.place import RELEASE_NAMESPACE, DemoError, Place
from e2e.demo.waiting import KubeObject, read, rolled_out, wait_for, wait_pods_gone
from e2e.images.plan import ImageSet

RELEASE = "fleetward"
CHART = "charts/fleetward"
VALUES = Path(__file__).with_name("values.yaml")
PART_SECONDS = 120.0
MOST_RESTARTS = 3
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
    for part in ("operator", "gateway"):
        wait_part(place, part, image=images.operator)


def upgrade_words(checkout: Path, images: ImageSet, *, settings: tuple[str, ...] = ()) -> list[str]:
    """The arguments of ``helm upgrade``."""
    tags = {"image.tag": tag_of(images.operator), "engine.image.tag": tag_of(images.engine)}
    pairs = [f"{name}={value}" for name, value in tags.items()] + list(settings)
    chosen = [word for pair in pairs for word in ("--set", pair)]
    where = ["--namespace", RELEASE_NAMESPACE, "--values", str(VALUES)]
    how = ["--install", "--history-max", "3"]
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


def wait_part(place: Place, part: str, *, image: str) -> None:
    """Wait until all pods of operator or gateway are new and ready.

    Raises:
        DemoError: one keeps ending, or time ran out; with its last words.
    """
    pods = (
        f"/api/v1/namespaces/{RELEASE_NAMESPACE}/pods"
        f"?labelSelector=app.kubernetes.io/component={part}"
    )

    def say(_: KubeObject) -> str:
        found = read(place, pods).get("items") or []
        fatal = next((words for pod in found if (words := crash_words(pod, image=image))), "")
        if fatal:
            raise DemoError(f"the {part} keeps ending at its start; its last words:\n{fatal}")
        return "; ".join(filter(None, (waiting_words(pod) for pod in found)))

    wait_for(
        place,
        f"/apis/apps/v1/namespaces/{RELEASE_NAMESPACE}/deployments/fleetward-{part}",
        done=lambda item: rolled_out(item, image=image),
        seconds=PART_SECONDS,
        say=say,
    )
    wait_pods_gone(place, pods)


def crash_words(pod: KubeObject, *, image: str) -> str:
    """Last words of a pod of this image that ended several times; "" for any other."""
    for state in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = (state.get("lastState") or {}).get("terminated") or {}
        ours = any(each["image"] == image for each in pod["spec"]["containers"])
        if ours and state.get("restartCount", 0) >= MOST_RESTARTS and not state.get("ready"):
            return str(ended.get("message") or f"exit status {ended.get('exitCode')}").strip()
    return ""


def waiting_words(pod: KubeObject) -> str:
    """What a pod waits for, in the kubelet's or the scheduler's words."""
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    for state in status.get("containerStatuses") or ():
        waiting = (state.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "ContainerCreating"):
            return f"{name}: {waiting['reason']} {waiting.get('message', '')}".strip()
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"{name}: {condition.get('message', 'not scheduled')}"
    return ""
