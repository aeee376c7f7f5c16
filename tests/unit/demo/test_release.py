"""What the demo reads from pods and deployments while it waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from e2e.demo.release import crash_words, upgrade_words, waiting_words
from e2e.demo.waiting import ending, phase_words, rolled_out, service_ready
from e2e.images.plan import ImageSet

IMAGE = "fleetward.local/operator:2"


def deployment(**changes: Any) -> dict[str, Any]:
    status = {
        "observedGeneration": 3,
        "replicas": 2,
        "updatedReplicas": 2,
        "availableReplicas": 2,
        **changes,
    }
    pod = {"spec": {"containers": [{"image": IMAGE}]}}
    spec = {"replicas": 2, "template": pod}
    return {"metadata": {"generation": 3}, "spec": spec, "status": status}


def test_a_finished_rollout_is_seen() -> None:
    assert rolled_out(deployment(), image=IMAGE)


@pytest.mark.parametrize(
    "changes",
    [
        {"observedGeneration": 2},  # the controller has not read the new spec yet
        {"replicas": 3},  # an old pod is still counted
        {"updatedReplicas": 1},
        {"availableReplicas": 1},
    ],
)
def test_an_unfinished_rollout_is_not_taken_for_done(changes: dict[str, int]) -> None:
    assert not rolled_out(deployment(**changes), image=IMAGE)


def test_the_old_image_is_not_taken_for_the_new() -> None:
    assert not rolled_out(deployment(), image="fleetward.local/operator:3")


def test_a_deployment_without_status_is_not_done() -> None:
    assert not rolled_out(deployment() | {"status": {}}, image=IMAGE)


@pytest.mark.parametrize(
    ("observed", "ready", "expected"),
    [(5, "True", True), (4, "True", False), (5, "False", False), (None, "True", False)],
)
def test_ready_counts_for_the_present_spec_only(
    observed: int | None, ready: str, expected: bool
) -> None:
    status = {"observedGeneration": observed, "conditions": [{"type": "Ready", "status": ready}]}
    assert service_ready({"metadata": {"generation": 5}, "status": status}) is expected


def pod(*, restarts: int, ready: bool = False, image: str = IMAGE, **state: Any) -> dict[str, Any]:
    container = {
        "restartCount": restarts,
        "ready": ready,
        "state": state,
        "lastState": {"terminated": {"message": "KeyError: 'x'\n", "exitCode": 1}},
    }
    return {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"image": image}]},
        "status": {"containerStatuses": [container]},
    }


def test_a_pod_that_keeps_ending_is_told_in_its_last_words() -> None:
    assert crash_words(pod(restarts=3), image=IMAGE) == "KeyError: 'x'"


@pytest.mark.parametrize(
    "harmless",
    [pod(restarts=1), pod(restarts=5, ready=True), pod(restarts=5, image="older")],
)
def test_a_pod_that_recovers_or_is_old_is_not_fatal(harmless: dict[str, Any]) -> None:
    assert crash_words(harmless, image=IMAGE) == ""


def test_the_kubelets_words_are_told() -> None:
    waiting = {"reason": "ErrImageNeverPull", "message": "image is not present"}
    assert waiting_words(pod(restarts=0, waiting=waiting)) == (
        "p: ErrImageNeverPull image is not present"
    )
    creating = {"reason": "ContainerCreating"}
    assert waiting_words(pod(restarts=0, waiting=creating)) == ""


def test_the_schedulers_words_are_told() -> None:
    condition = {"type": "PodScheduled", "status": "False", "message": "insufficient cpu"}
    pending = {"metadata": {"name": "p"}, "spec": {}, "status": {"conditions": [condition]}}
    assert waiting_words(pending) == "p: insufficient cpu"


def test_pods_on_their_way_out_are_found() -> None:
    leaving = {"metadata": {"name": "old", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert ending({"items": [leaving, {"metadata": {"name": "new"}}]}) == ["old"]


def test_phase_and_sentence_are_told_together() -> None:
    assert phase_words({"phase": "Fencing", "message": "0 of 2"}) == "Fencing: 0 of 2"
    assert phase_words({}) == ""


def test_helm_gets_both_tags_and_the_local_values() -> None:
    images = ImageSet(operator="r/operator:aa", engine="r/engine:bb")
    words = upgrade_words(Path("/repo"), images, settings=("operator.replicas=2",))
    sets = [words[at + 1] for at, word in enumerate(words) if word == "--set"]
    assert sets == ["image.tag=aa", "engine.image.tag=bb", "operator.replicas=2"]
    assert "--install" in words
