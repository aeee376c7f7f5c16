"""Pods as the core sees them: read from the API's JSON, reduced to what decisions need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleetward_operator.manifests.names import COMPONENT_LABEL, SERVICE_LABEL

MAX_WORDS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerWords:
    """What the kubelet says about one container; empty strings where it says nothing."""

    waiting_reason: str = ""
    waiting_message: str = ""
    last_reason: str = ""
    last_message: str = ""
    last_exit_code: int | None = None
    restarts: int = 0
    running: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSeen:
    """One pod. `ended_at` is set when the kubelet said that every container of it ended."""

    namespace: str
    name: str
    uid: str
    component: str
    service: str
    service_account: str
    ip: str
    phase: str
    node: str
    ready: bool
    deleting: bool
    image: str
    created: str
    unschedulable: str
    container: ContainerWords
    ended_at: str
    ended_words: str
    finalizers: tuple[str, ...]

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def reachable(self) -> bool:
        """Whether a process of it can be called now."""
        return bool(self.ip) and self.container.running

    @property
    def ended(self) -> bool:
        """Whether the kubelet said that nothing of it runs any more."""
        return bool(self.ended_words)


def observe_pod(pod: Mapping[str, Any]) -> PodSeen:
    """Read a pod (whole or trimmed by `trim_pod`)."""
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    spec = pod.get("spec") or {}
    status = pod.get("status") or {}
    statuses = status.get("containerStatuses") or []
    ended_at, ended_words = _end_of(status, statuses)
    component = labels.get(COMPONENT_LABEL, "")
    image = _ours(spec.get("containers") or [], component).get("image", "")
    return PodSeen(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        component=component,
        service=labels.get(SERVICE_LABEL, ""),
        service_account=spec.get("serviceAccountName", ""),
        ip=status.get("podIP", ""),
        phase=status.get("phase", ""),
        node=spec.get("nodeName", ""),
        ready=_condition(status, "Ready").get("status") == "True",
        deleting="deletionTimestamp" in metadata,
        image=image,
        created=metadata.get("creationTimestamp", ""),
        unschedulable=_unschedulable(status),
        container=_words(_ours(statuses, component)),
        ended_at=ended_at,
        ended_words=ended_words,
        finalizers=tuple(metadata.get("finalizers") or ()),
    )


def trim_pod(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a pod that `observe_pod` reads; a fleet of thousands stays small in memory."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "labels")
    slim = {key: metadata[key] for key in kept if key in metadata}
    for key in ("deletionTimestamp", "finalizers"):
        if key in metadata:
            slim[key] = metadata[key]
    images = [
        {"name": one.get("name", ""), "image": one.get("image", "")}
        for one in spec.get("containers") or []
    ]
    status_keys = ("phase", "podIP", "conditions", "containerStatuses", "reason", "message")
    return {
        "metadata": slim,
        "spec": {
            "serviceAccountName": spec.get("serviceAccountName", ""),
            "nodeName": spec.get("nodeName", ""),
            "containers": images,
        },
        "status": {key: status[key] for key in status_keys if key in status},
    }


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    for one in status.get("conditions") or []:
        if one.get("type") == kind:
            return dict(one)
    return {}


def _ours(named: list[Any], component: str) -> Mapping[str, Any]:
    """The entry of our container, which is named like the component; others are sidecars."""
    found = next((one for one in named if one.get("name") == component), None)
    return found or (named[0] if named else {})


def _unschedulable(status: Mapping[str, Any]) -> str:
    """The scheduler's own words, when it could not place the pod."""
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") != "False" or scheduled.get("reason") != "Unschedulable":
        return ""
    return str(scheduled.get("message", ""))[:MAX_WORDS] or "no reason given"


def _words(status: Mapping[str, Any]) -> ContainerWords:
    state = status.get("state") or {}
    waiting = state.get("waiting") or {}
    last = state.get("terminated") or (status.get("lastState") or {}).get("terminated") or {}
    return ContainerWords(
        waiting_reason=str(waiting.get("reason", "")),
        waiting_message=str(waiting.get("message", ""))[:MAX_WORDS],
        last_reason=str(last.get("reason", "")),
        # The end of a log says why; its beginning says hello.
        last_message=str(last.get("message", "")).strip()[-MAX_WORDS:],
        last_exit_code=last.get("exitCode"),
        restarts=int(status.get("restartCount", 0)),
        running="running" in state,
    )


def _end_of(status: Mapping[str, Any], statuses: list[Mapping[str, Any]]) -> tuple[str, str]:
    """(time, words) of the end of all containers, or two empty strings.

    A pod's phase alone is no proof: only the kubelet's word on each container's end is believed.
    """
    if not statuses or status.get("phase") not in {"Succeeded", "Failed", "Running"}:
        return "", ""
    ends = []
    for one in statuses:
        end = (one.get("state") or {}).get("terminated")
        if not end:
            return "", ""
        ends.append((str(end.get("finishedAt", "")), one.get("name", ""), end))
    words = "; ".join(
        f"container {name} ended: {end.get('reason', 'Unknown')}, exit code {end.get('exitCode')}"
        for _, name, end in ends
    )
    return max(at for at, _, _ in ends), f"kubelet: {words}"
