"""IsolationVerified: what probes prove, what they break, and what nobody can say."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.bundle import PolicyBundle, ServiceRef
from fleetward_api.conditions import find_condition
from fleetward_api.floors import Floors
from fleetward_api.isolation_probe import ProbeJudgement
from fleetward_api.resources.condition import Condition
from fleetward_operator.core.observed import ServiceObserved
from fleetward_operator.core.probe_seen import (
    RETRY_S,
    UNSUPPORTED,
    BundleName,
    ProbeSeen,
    probe_due_in,
    remember_probe,
    rules_digest,
)
from fleetward_operator.core.service_plan import plan_service
from tests.support.operator_facts import CONFIG, NOW, deployment, observed, pod, service

PROVED = ProbeJudgement("Proved", "")
FAILED = ProbeJudgement("Failed", "reuse crossed a scope: another tenant found 32 of 33 tokens")
BUSY = ProbeJudgement("NotProved", "it had no room for a probe in time")
BUNDLE = PolicyBundle(
    service=ServiceRef(namespace="apps", name="demo", uid="uid-demo"), generation=1, epoch=1
)
RAISED = BUNDLE.model_copy(update={"generation": 2, "floors": Floors(version=1, tenants={"a": 1})})
ROTATED = BUNDLE.model_copy(update={"generation": 3, "epoch": 2})


def probe(*shown: ProbeJudgement, bundle: PolicyBundle = BUNDLE) -> ProbeSeen:
    """What is known after these probes in a row."""
    seen = None
    for number, one in enumerate(shown):
        seen = remember_probe(seen, bundle, one, at=float(number), wall=1000.0 + number)
    assert seen is not None
    return seen


def two(**probes: ProbeSeen) -> ServiceObserved:
    """A service of two engines that take requests."""
    pods = (pod("a", ready=True), pod("b", ready=True))
    return observed(
        service(scaling={"minReplicas": 2}),
        pods=pods,
        live=deployment(wanted=2),
        bundle=BUNDLE,
        probes={f"uid-{name}": one for name, one in probes.items()},
    )


def told(seen: ServiceObserved, kind: str = "IsolationVerified") -> Condition:
    plan = plan_service(seen, config=CONFIG, now=NOW)
    found = find_condition(plan.status.conditions, kind)
    assert found is not None
    return found


def led_anew(seen: ServiceObserved) -> ServiceObserved:
    """The same service as the next leader sees it: with the status written, and no probe known."""
    status = plan_service(seen, config=CONFIG, now=NOW).status
    return replace(seen, service=seen.service.model_copy(update={"status": status}), probes={})


def test_every_engine_has_to_be_proved() -> None:
    assert told(two()).reason == "Probing"
    half = told(two(a=probe(PROVED)))
    assert (half.status, half.reason) == ("Unknown", "Probing")
    whole = told(two(a=probe(PROVED), b=probe(PROVED)))
    assert (whole.status, whole.reason) == ("True", "Verified")


def test_one_engine_that_shares_degrades_the_service_and_is_named() -> None:
    seen = two(a=probe(PROVED), b=probe(FAILED))
    found = told(seen)
    assert (found.status, found.reason) == ("False", "IsolationBroken")
    assert "ngine b: reuse crossed a scope: another tenant found 32 of 33" in found.message
    degraded = told(seen, "Degraded")
    assert (degraded.status, degraded.reason) == ("True", "IsolationBroken")
    ready = told(seen, "Ready")
    assert ready.status == "True"
    assert "see IsolationVerified" in ready.message


def test_a_failure_is_announced_once_and_so_is_its_end() -> None:
    broken = two(a=probe(PROVED), b=probe(FAILED))
    first = plan_service(broken, config=CONFIG, now=NOW)
    assert "IsolationBroken" in [one.reason for one in first.announcements]
    known = replace(broken, service=broken.service.model_copy(update={"status": first.status}))
    again = plan_service(known, config=CONFIG, now=NOW)
    assert "IsolationBroken" not in [one.reason for one in again.announcements]
    mended = replace(known, probes={"uid-a": probe(PROVED), "uid-b": probe(FAILED, PROVED)})
    after = plan_service(mended, config=CONFIG, now=NOW)
    assert [one.reason for one in after.announcements] == ["IsolationMended"]


def test_an_engine_from_before_the_probe_is_unknown_and_never_broken() -> None:
    found = told(two(a=probe(PROVED), b=probe(UNSUPPORTED)))
    assert (found.status, found.reason) == ("Unknown", "ProbeUnsupported")
    assert told(two(a=probe(PROVED), b=probe(UNSUPPORTED)), "Degraded").status == "False"


def test_a_busy_engine_is_unknown_until_it_was_proved_and_not_after() -> None:
    found = told(two(a=probe(PROVED), b=probe(BUSY)))
    assert (found.status, found.reason) == ("Unknown", "NotProved")
    assert "no room" in found.message
    assert told(two(a=probe(PROVED, BUSY), b=probe(BUSY, PROVED, BUSY))).reason == "Verified"


def test_an_engine_that_takes_no_requests_is_not_asked_for_a_proof() -> None:
    seen = two(a=probe(PROVED))
    waiting = replace(seen, pods=(pod("a", ready=True), pod("b")))
    assert told(waiting).reason == "Verified"
    assert told(replace(seen, pods=(pod("a"), pod("b")))).reason == "Probing"


def test_other_rules_need_another_proof_and_higher_floors_do_not() -> None:
    assert probe(PROVED).proves(rules_digest(RAISED))
    assert not probe(PROVED).proves(rules_digest(ROTATED))


def test_the_next_leader_writes_nothing_and_lets_the_proof_stand() -> None:
    proved = led_anew(two(a=probe(PROVED), b=probe(PROVED)))
    again = plan_service(proved, config=CONFIG, now=NOW)
    assert again.status == proved.service.status
    assert told(proved).reason == "Verified"


@pytest.mark.parametrize(
    "pods",
    [
        (pod("a", ready=True), pod("c", ready=True)),
        (pod("a", ready=True), pod("b", ready=True, restarts=1)),
        (pod("a", ready=True), pod("b", ready=True), pod("c", ready=True)),
    ],
    ids=["replaced", "restarted", "added"],
)
def test_a_proof_stands_for_no_other_engines(pods: tuple[pod, ...]) -> None:  # type: ignore[valid-type]
    proved = led_anew(two(a=probe(PROVED), b=probe(PROVED)))
    assert proved.bundle is not None
    acks = dict.fromkeys((one.uid for one in pods), proved.acks["uid-a"])  # type: ignore[attr-defined]
    assert told(replace(proved, pods=pods, acks=acks)).reason == "Probing"


def test_a_failure_stands_for_the_next_leader_until_every_engine_is_proved() -> None:
    broken = led_anew(two(a=probe(PROVED), b=probe(FAILED)))
    first = plan_service(broken, config=CONFIG, now=NOW)
    assert first.status == broken.service.status
    assert first.announcements == ()
    assert told(replace(broken, acks={})).reason == "IsolationBroken"
    busy = replace(broken, probes={"uid-a": probe(PROVED), "uid-b": probe(BUSY)})
    assert told(busy).reason == "IsolationBroken"
    mended = replace(broken, probes={"uid-a": probe(PROVED), "uid-b": probe(PROVED)})
    after = plan_service(mended, config=CONFIG, now=NOW)
    assert [one.reason for one in after.announcements] == ["IsolationMended"]
    assert told(mended).reason == "Verified"


def test_a_failure_stands_for_no_engines_that_are_gone_or_cannot_be_probed() -> None:
    broken = led_anew(two(a=probe(PROVED), b=probe(FAILED)))
    older = replace(broken, probes={"uid-a": probe(PROVED), "uid-b": probe(UNSUPPORTED)})
    assert told(older).reason == "ProbeUnsupported"
    assert told(replace(broken, pods=())).reason == "NoReplica"


def test_what_stands_is_the_last_that_was_shown() -> None:
    assert probe(FAILED, BUSY).is_broken
    assert not probe(FAILED, PROVED).is_broken
    assert probe(PROVED, BUSY).proved_at == 1000.0
    assert probe(PROVED, PROVED).proved_at == 1001.0
    assert probe(PROVED, FAILED).proved_at is None
    under_new_rules = remember_probe(probe(PROVED), ROTATED, BUSY, at=1.0, wall=1.0)
    assert not under_new_rules.proves(rules_digest(BUNDLE))
    assert not under_new_rules.proves(rules_digest(ROTATED))
    assert remember_probe(probe(FAILED), ROTATED, BUSY, at=1.0, wall=1.0).is_broken


judgements = st.sampled_from([PROVED, FAILED, BUSY, UNSUPPORTED])
times = st.floats(0, 1e9)


@given(judgements, times, times, st.sampled_from([0.0, 60.0, 600.0]))
def test_probes_are_repeated_as_told(
    shown: ProbeJudgement, at: float, later: float, interval_s: float
) -> None:
    seen = remember_probe(None, BUNDLE, shown, at=at, wall=0.0)
    now = at + later
    due = probe_due_in(seen, BundleName.of(BUNDLE), now=now, interval_s=interval_s)
    assert due >= 0
    assert probe_due_in(seen, BundleName.of(ROTATED), now=now, interval_s=interval_s) == 0
    assert probe_due_in(None, BundleName.of(BUNDLE), now=now, interval_s=interval_s) == 0
    pause = {"Proved": interval_s or math.inf}.get(shown.verdict, RETRY_S)
    if shown == UNSUPPORTED:
        pause = math.inf
    assert due == max(0.0, at + pause - now)
    raised = math.inf if shown == UNSUPPORTED else max(0.0, at + RETRY_S - now)
    assert probe_due_in(seen, BundleName.of(RAISED), now=now, interval_s=interval_s) == raised


def test_purges_one_after_another_are_no_storm_of_probes() -> None:
    seen, asked = None, 0
    for second in range(600):
        floors = Floors(version=second, tenants={"a": second})
        bundle = BUNDLE.model_copy(update={"generation": second, "floors": floors})
        if probe_due_in(seen, BundleName.of(bundle), now=float(second), interval_s=0.0) == 0:
            seen = remember_probe(seen, bundle, PROVED, at=float(second), wall=0.0)
            asked += 1
    assert asked == 600 / RETRY_S


def test_a_broken_engine_that_proves_nothing_under_new_rules_is_asked_again_after_a_pause() -> None:
    broken = remember_probe(probe(FAILED), ROTATED, BUSY, at=5.0, wall=5.0)
    assert probe_due_in(broken, BundleName.of(ROTATED), now=5.0, interval_s=600.0) == RETRY_S
