"""Plans and conditions of a service: examples, then what holds for everything seen."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from fleetward_api import bundle
from fleetward_api.bundle import PolicyBundle, ServiceRef
from fleetward_api.canonical import canonical_bytes
from fleetward_api.condition_types import condition_types, undocumented
from fleetward_api.conditions import find_condition
from fleetward_api.isolation_probe import ProbeJudgement
from fleetward_operator.core.children import ApplyChild
from fleetward_operator.core.gate import Refusal
from fleetward_operator.core.observed import ServiceObserved
from fleetward_operator.core.probe_seen import UNSUPPORTED, remember_probe
from fleetward_operator.core.refused_status import invalid_status
from fleetward_operator.core.service_plan import READ_EVERY_S, ServicePlan, plan_service
from tests.support.operator_facts import (
    CONFIG,
    NOW,
    deployment,
    engine_state,
    observed,
    pod,
    policy,
    service,
)

UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available",
}
WAITING = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
CRASHING = {"waiting": {"reason": "CrashLoopBackOff"}}
LAST = {"exitCode": 2, "reason": "Error", "message": "digest mismatch"}


def plan(seen: ServiceObserved) -> ServicePlan:
    return plan_service(seen, config=CONFIG, now=NOW)


def reasons(seen: ServiceObserved) -> dict[str, str]:
    return {one.type: f"{one.status}/{one.reason}" for one in plan(seen).status.conditions}


def test_a_bundle_is_read_through_as_often_for_one_engine_as_for_fifty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = 0

    def count(value: BaseModel) -> bytes:
        nonlocal read
        read += 1
        return canonical_bytes(value)

    monkeypatch.setattr(bundle, "canonical_bytes", count)
    counts = []
    for engines in (1, 50):
        pods = tuple(pod(f"e{number}", ready=True) for number in range(engines))
        seen = observed(service(scaling={"minReplicas": engines}), pods=pods)
        read = 0
        plan(seen)
        counts.append(read)
    assert counts[0] == counts[1] > 0


def test_all_engines_ready_under_the_wanted_policy_is_serving() -> None:
    seen = observed(pods=(pod("a", ready=True),), live=deployment(wanted=1))
    found = reasons(seen)
    assert found["Ready"] == "True/Serving"
    assert found["Reconciling"] == "False/Settled"
    assert found["CachePolicyEnforced"] == "True/AllAcked"
    assert found["IsolationVerified"] == "True/Verified"
    assert found["ModelLoaded"] == "True/Loaded"
    assert plan(seen).requeue_after == READ_EVERY_S


def test_zero_replicas_are_idle_and_ready() -> None:
    seen = observed(service(scaling={"minReplicas": 0}), live=deployment(wanted=0))
    found = reasons(seen)
    assert found["Ready"] == "True/Idle"
    assert found["Stalled"] == "False/NotStalled"
    assert found["RouteReady"] == "False/Idle"


def test_an_engine_that_has_not_acked_is_pushed_to_and_holds_back_ready() -> None:
    seen = observed(pods=(pod("a", ready=True),), acked=False, live=deployment(wanted=1))
    assert [one.name for one in plan(seen).pushes] == ["a"]
    found = reasons(seen)
    assert found["Ready"] == "False/PushingPolicy"
    assert found["CachePolicyEnforced"] == "False/WaitingForAcks"
    assert found["IsolationVerified"] == "False/WaitingForProof"
    assert plan(seen).requeue_after is not None


def test_an_ack_of_an_older_bundle_does_not_enforce_the_newer() -> None:
    seen = observed(pods=(pod("a", ready=True),), live=deployment(wanted=1))
    assert seen.bundle is not None
    newer = replace(seen, bundle=seen.bundle.model_copy(update={"generation": 2}))
    assert reasons(newer)["CachePolicyEnforced"] == "False/WaitingForAcks"
    assert reasons(newer)["IsolationVerified"] == "False/FloorsDiffer"


def test_the_old_generations_pods_do_not_make_the_new_one_ready() -> None:
    stale = deployment(wanted=1)
    stale["metadata"]["generation"] = 2
    seen = observed(pods=(pod("a", ready=True),), live=stale)
    assert reasons(seen)["Ready"] == "False/Starting"


@pytest.mark.parametrize(
    ("seen_pod", "reason", "words"),
    [
        (pod("a", state={}, phase="Pending", scheduled=UNSCHEDULABLE), "Unschedulable", "0/3"),
        (pod("a", state=WAITING, phase="Pending"), "ImagePullFailed", "no such image"),
        (pod("a", state=CRASHING, last=LAST, restarts=3), "EngineCrashing", "digest mismatch"),
    ],
)
def test_the_words_of_scheduler_and_kubelet_stall_the_service(
    seen_pod: Any, reason: str, words: str
) -> None:
    seen = observed(pods=(seen_pod,), live=deployment(wanted=1))
    assert reasons(seen)["Stalled"] == f"True/{reason}"
    assert words in (plan(seen).status.message or "")


def test_an_engine_that_cannot_load_its_model_says_why() -> None:
    states = {"uid-a": engine_state("uid-a", fault="package demo holds no GGUF file")}
    seen = observed(pods=(pod("a"),), states=states, live=deployment(wanted=1))
    assert reasons(seen)["Ready"] == "False/ModelFailed"
    assert "no GGUF file" in (plan(seen).status.message or "")


def test_engines_with_different_files_are_told_apart() -> None:
    states = {
        "uid-a": engine_state("uid-a", digest="sha256:aa"),
        "uid-b": engine_state("uid-b", digest="sha256:bb"),
    }
    pods = (pod("a", ready=True), pod("b", ready=True))
    seen = observed(service(scaling={"minReplicas": 2}), pods=pods, states=states)
    assert reasons(seen)["ModelLoaded"] == "False/DigestsDiffer"


def test_a_missing_policy_keeps_the_last_rules_and_never_counts_as_enforced() -> None:
    subject = service(cachePolicyRef={"name": "absent"})
    found = reasons(observed(subject, pods=(pod("a", ready=True),)))
    assert found["CachePolicyEnforced"] == "False/PolicyNotFound"
    assert found["Stalled"] == "True/PolicyNotFound"


def test_absent_access_is_said_where_its_author_looks() -> None:
    seen = observed(service(access={}), pods=(pod("a", ready=True),), live=deployment(wanted=1))
    assert reasons(seen)["RouteReady"] == "False/NobodyAllowed"
    assert reasons(seen)["Ready"] == "True/Serving"


def test_a_refused_image_makes_no_children_and_stalls() -> None:
    seen = observed(service(engine={"image": "evil.test/x:1"}))
    assert plan(seen).actions == ()
    assert reasons(seen)["Stalled"] == "True/ImageNotAllowed"


def test_missing_children_are_applied_in_order() -> None:
    actions = plan(observed()).actions
    assert all(isinstance(one, ApplyChild) and one.why == "Missing" for one in actions)
    kinds = [one.manifest["kind"] for one in actions if isinstance(one, ApplyChild)]
    assert kinds[-1] == "Deployment"


def test_becoming_ready_is_announced_once() -> None:
    first = observed(pods=(pod("a", ready=True),), live=deployment(wanted=1))
    told = [one.reason for one in plan(first).announcements]
    assert told == ["ServiceReady", "PolicyEnforced"]
    subject = service(status=plan(first).status.to_manifest())
    again = observed(subject, pods=(pod("a", ready=True),), live=deployment(wanted=1))
    assert plan(again).announcements == ()


def test_an_unreadable_spec_has_every_condition_and_all_are_documented() -> None:
    status = invalid_status("spec.x: no", before=(), generation=4, now=NOW)
    assert undocumented("InferenceService", status.conditions) == ()
    types = [one.type for one in condition_types("InferenceService")]
    assert [one.type for one in status.conditions] == types


BUNDLE = PolicyBundle(
    service=ServiceRef(namespace="apps", name="demo", uid="uid-demo"), generation=1, epoch=1
)
JUDGEMENTS = (
    ProbeJudgement("Proved", ""),
    ProbeJudgement("Failed", "reuse crossed a scope"),
    ProbeJudgement("NotProved", "it had no room for a probe in time"),
    UNSUPPORTED,
)
# Everything a pass can see, in combination.
containers = st.sampled_from([{"running": {}}, WAITING, CRASHING, {}, {"terminated": LAST}])


@st.composite
def observations(draw: st.DrawFn) -> ServiceObserved:
    wanted = draw(st.integers(0, 3))
    kwargs: dict[str, Any] = {}
    pods = tuple(
        pod(
            f"p{number}",
            state=draw(containers),
            ready=draw(st.booleans()),
            restarts=draw(st.integers(0, 2)),
            phase=draw(st.sampled_from(["Pending", "Running", "Failed"])),
            scheduled=draw(st.sampled_from([None, UNSCHEDULABLE])),
            deleting=draw(st.booleans()),
        )
        for number in range(draw(st.integers(0, 3)))
    )
    spec: dict[str, Any] = {"scaling": {"minReplicas": wanted}}
    if draw(st.booleans()):
        spec["cachePolicyRef"] = {"name": "strict"}
    if draw(st.booleans()):
        spec["access"] = {}
    if draw(st.booleans()):
        spec["engine"] = {"runner": "Simulated"}
    if draw(st.booleans()):
        spec = {**spec, "scaling": {"mode": "External"}, "replicas": wanted}
    fault = draw(st.sampled_from(["", "no model"]))
    if draw(st.booleans()):
        shown = draw(st.sampled_from(JUDGEMENTS))
        old = draw(st.sampled_from([BUNDLE, BUNDLE.model_copy(update={"epoch": 9})]))
        probe = remember_probe(None, old, shown, at=0.0, wall=0.0)
        kwargs["probes"] = {one.uid: probe for one in pods}
    return observed(
        service(**spec),
        pods=pods,
        acked=draw(st.booleans()),
        policies=(policy("strict"),) if draw(st.booleans()) else (),
        live=draw(st.sampled_from([None, deployment(wanted=wanted), deployment(wanted=1)])),
        states={one.uid: engine_state(one.uid, fault=fault) for one in pods},
        taken=draw(st.sampled_from([(), ("Service demo",)])),
        name_conflict=draw(
            st.sampled_from([None, Refusal(reason="NameTaken", message="another has it")])
        ),
        **kwargs,
    )


@given(observations())
def test_every_condition_is_there_and_documented(seen: ServiceObserved) -> None:
    status = plan(seen).status
    assert [one.type for one in status.conditions] == [
        one.type for one in condition_types("InferenceService")
    ]
    assert undocumented("InferenceService", status.conditions) == ()
    assert status.observed_generation == seen.service.metadata.generation
    assert status.selector


@given(observations())
def test_kstatus_never_sees_a_contradiction(seen: ServiceObserved) -> None:
    found = {one.type: one.status for one in plan(seen).status.conditions}
    assert not (found["Reconciling"] == "True" and found["Stalled"] == "True")
    if found["Ready"] == "True":
        assert found["Reconciling"] == "False"
        assert found["Stalled"] == "False"
    else:
        assert "True" in {found["Reconciling"], found["Stalled"]}


@given(observations())
def test_a_second_look_changes_nothing(seen: ServiceObserved) -> None:
    first = plan(seen).status
    subject = seen.service.model_copy(update={"status": first})
    later = NOW + dt.timedelta(hours=1)
    again = plan_service(replace(seen, service=subject), config=CONFIG, now=later)
    assert again.status == first
    assert [one for one in again.announcements if one.reason != "PolicyEnforced"] == []


@given(observations())
def test_enforced_means_every_running_engine_acked(seen: ServiceObserved) -> None:
    enforced = find_condition(plan(seen).status.conditions, "CachePolicyEnforced")
    assert enforced is not None
    if enforced.reason == "AllAcked":
        assert seen.running
        assert all(seen.has_acked(one) for one in seen.running)
    assert {one.uid for one in plan(seen).pushes} == {
        one.uid for one in seen.running if seen.bundle and not seen.has_acked(one)
    }
