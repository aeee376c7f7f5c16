"""Wait for our objects, telling each new sentence of their own status."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from e2e.demo.place import DemoError, Place
from fleetward_cli.cluster import GROUP, read_paths
from fleetward_cli.summary import find_condition
from fleetward_kube import KubeError

POLL_SECONDS = 0.5
SERVICE_SECONDS = 300.0
PURGE_SECONDS = 90.0
FINAL_PHASES = ("Completed", "Incomplete")

KubeObject = dict[str, Any]


def read(place: Place, path: str) -> KubeObject:
    """An object of the cluster."""
    return read_paths({"it": path}, kubeconfig=place.kubeconfig)["it"]


def wait_for(
    place: Place,
    path: str,
    *,
    done: Callable[[KubeObject], bool],
    seconds: float,
    say: Callable[[KubeObject], str],
) -> KubeObject:
    """Poll until ``done``; every change of what ``say`` makes of the object is told once.

    Raises:
        DemoError: time ran out; with the object's last words.
    """
    deadline = time.monotonic() + seconds
    words = ""
    while True:
        try:
            item = read(place, path)
        except KubeError as error:
            if not (error.retryable or error.not_found):
                raise
            item = {}
        news = say(item)
        if news and news != words:
            words = news
            place.steps.tell(f"          {words}")
        if item and done(item):
            return item
        if time.monotonic() > deadline:
            raise DemoError(f"{path} is not done after {seconds:.0f} s; its last words: {words}")
        time.sleep(POLL_SECONDS)


def wait_service(place: Place, namespace: str, name: str, *, image: str) -> None:
    """Wait until the service is Ready, every replica runs ``image`` and no older pod is left.

    An old pod that drains may vanish in the middle of a purge, which then cannot vouch for it.
    """
    path = f"{GROUP}/namespaces/{namespace}/inferenceservices/{name}"
    deployment = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
    wait_for(
        place,
        deployment,
        done=lambda item: rolled_out(item, image=image),
        seconds=SERVICE_SECONDS,
        say=lambda _deployment: message_of(place, path),
    )
    wait_for(place, path, done=service_ready, seconds=SERVICE_SECONDS, say=message_in)
    labels = f"fleetward.io/service={name}"
    wait_pods_gone(place, f"/api/v1/namespaces/{namespace}/pods?labelSelector={labels}")


def wait_pods_gone(place: Place, pods: str) -> None:
    """Wait until none of these pods is on its way out."""
    wait_for(
        place,
        pods,
        done=lambda found: not ending(found),
        seconds=SERVICE_SECONDS,
        say=lambda found: f"old pods end: {', '.join(ending(found))}" if ending(found) else "",
    )


def ending(pods: KubeObject) -> list[str]:
    """Names of the pods of a list that are being deleted."""
    metadata = (pod["metadata"] for pod in pods.get("items") or ())
    return [str(each["name"]) for each in metadata if each.get("deletionTimestamp")]


def rolled_out(deployment: KubeObject, *, image: str) -> bool:
    """Whether all pods are of this image, and available."""
    spec, status = deployment["spec"], deployment.get("status") or {}
    images = {each["image"] for each in spec["template"]["spec"]["containers"]}
    wanted = spec.get("replicas", 1)
    counts = (status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas"))
    seen = status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
    return image in images and seen and all(count == wanted for count in counts)


def service_ready(service: KubeObject) -> bool:
    """Whether its status speaks of the present spec and says Ready."""
    status = service.get("status") or {}
    current = status.get("observedGeneration") == service["metadata"]["generation"]
    return current and find_condition(status, "Ready").get("status") == "True"


def message_of(place: Place, path: str) -> str:
    """The object's own sentence; "" while it cannot be read."""
    try:
        return message_in(read(place, path))
    except KubeError:
        return ""


def message_in(item: KubeObject) -> str:
    """The status's one sentence."""
    return str((item.get("status") or {}).get("message") or "")


def wait_purge(place: Place, name: str) -> KubeObject:
    """Wait until the purge is final; returns it."""
    return wait_for(
        place,
        f"{GROUP}/cachepurges/{name}",
        done=lambda item: (item.get("status") or {}).get("phase") in FINAL_PHASES,
        seconds=PURGE_SECONDS,
        say=lambda item: phase_words(item.get("status") or {}),
    )


def phase_words(status: KubeObject) -> str:
    """Phase and sentence."""
    return ": ".join(filter(None, (status.get("phase", ""), status.get("message", ""))))
