"""Pods as the core sees them, and the trouble they are in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_operator.core.pods import observe_pod, trim_pod
from fleetward_operator.core.trouble import decide_trouble, pod_trouble
from tests.support.operator_facts import pod, pod_manifest

TERMINATED = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": "t"}}


@given(
    state=st.sampled_from([{"running": {}}, {}, TERMINATED, {"waiting": {"reason": "x"}}]),
    phase=st.sampled_from(["Pending", "Running", "Failed", "Succeeded"]),
    ready=st.booleans(),
    restarts=st.integers(0, 5),
    deleting=st.booleans(),
)
def test_trimming_loses_nothing_that_is_read(**facts: Any) -> None:
    manifest = pod_manifest("a", **facts)
    assert observe_pod(trim_pod(manifest)) == observe_pod(manifest)


def test_a_bare_pod_can_be_read() -> None:
    seen = observe_pod({"metadata": {"name": "x"}})
    assert (seen.reachable, seen.ended, seen.unschedulable) == (False, False, "")


def test_only_the_kubelets_word_on_every_container_is_an_end() -> None:
    assert pod("a", state=TERMINATED, phase="Succeeded").ended
    assert pod("a", state=TERMINATED).ended_words == (
        "kubelet: container engine ended: Completed, exit code 0"
    )
    assert not pod("a").ended
    assert not pod("a", state={"waiting": {"reason": "x"}}, phase="Failed").ended
    manifest = pod_manifest("a", state=TERMINATED)
    manifest["status"]["containerStatuses"].append({"name": "mesh", "state": {"running": {}}})
    assert not observe_pod(manifest).ended


def test_a_sidecar_does_not_speak_for_the_engine() -> None:
    manifest = pod_manifest("a", state={"running": {}}, restarts=2)
    sidecar = {"name": "mesh", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    manifest["status"]["containerStatuses"].insert(0, sidecar)
    seen = observe_pod(manifest)
    assert (seen.container.running, seen.container.restarts) == (True, 2)


@pytest.mark.parametrize("reason", ["CreateContainerConfigError", "RunContainerError"])
def test_a_container_that_cannot_start_says_why(reason: str) -> None:
    waiting = {"waiting": {"reason": reason, "message": "configmap demo-trust not found"}}
    trouble = pod_trouble(pod("a", state=waiting, phase="Pending"))
    assert trouble is not None
    assert trouble.reason == "EngineNotStarting"
    assert "configmap demo-trust not found" in trouble.message


def test_no_trouble_where_a_pod_starts_serves_or_leaves() -> None:
    assert pod_trouble(pod("a")) is None
    assert pod_trouble(pod("a", ready=True, restarts=3)) is None
    leaving = pod("a", state={"waiting": {"reason": "ErrImagePull"}}, deleting=True)
    assert pod_trouble(leaving) is None


def test_the_trouble_that_a_person_must_mend_comes_first() -> None:
    last = {"exitCode": 1, "reason": "Error", "message": "boom"}
    crashing = pod("a", state={"waiting": {"reason": "CrashLoopBackOff"}}, last=last)
    no_image = pod("b", state={"waiting": {"reason": "ErrImagePull"}})
    found = decide_trouble([crashing, no_image])
    assert found is not None
    assert found.reason == "ImagePullFailed"
    assert decide_trouble([]) is None
