"""The words of scheduler and kubelet, turned into one reason and one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fleetward_operator.core.pods import PodSeen

IMAGE_REASONS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
    }
)
START_REASONS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError"}
)
_ORDER = ("ImagePullFailed", "EngineNotStarting", "EngineCrashing", "Unschedulable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why a pod is not serving: a condition reason and a sentence that quotes who said it."""

    reason: str
    message: str


def decide_trouble(pods: Iterable[PodSeen]) -> Trouble | None:
    """The worst trouble among a service's pods, the one that a person must act on first."""
    found = [one for one in map(pod_trouble, pods) if one is not None]
    return min(found, key=lambda one: _ORDER.index(one.reason), default=None)


def pod_trouble(pod: PodSeen) -> Trouble | None:
    """What is wrong with one pod, or None."""
    if pod.deleting or pod.ready:
        return None
    if pod.unschedulable:
        words = f"Pod {pod.name} cannot be placed. Scheduler: {pod.unschedulable}"
        return Trouble(reason="Unschedulable", message=words)
    container = pod.container
    if container.waiting_reason in IMAGE_REASONS:
        words = f"Pod {pod.name} cannot get image {pod.image}. Kubelet: {container.waiting_reason}"
        return Trouble(reason="ImagePullFailed", message=_with(words, container.waiting_message))
    if container.waiting_reason in START_REASONS:
        words = f"Pod {pod.name} cannot start. Kubelet: {container.waiting_reason}"
        return Trouble(reason="EngineNotStarting", message=_with(words, container.waiting_message))
    if container.waiting_reason == "CrashLoopBackOff" or container.last_exit_code not in {None, 0}:
        return Trouble(reason="EngineCrashing", message=_crash(pod))
    return None


def _crash(pod: PodSeen) -> str:
    last = pod.container
    words = (
        f"The engine in pod {pod.name} ended {last.restarts or 1} time(s), last with exit code "
        f"{last.last_exit_code} ({last.last_reason or 'no reason'})"
    )
    return _with(words, last.last_message)


def _with(words: str, more: str) -> str:
    return f"{words}: {more}" if more else words
