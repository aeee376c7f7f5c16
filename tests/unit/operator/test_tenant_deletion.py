"""A Tenant on its way out waits for its purge, within a bound."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.resources import CachePurge
from fleetward_api.resources.metadata import ObjectMeta
from fleetward_operator.core.tenant_deletion import (
    BREAK_GLASS,
    FINALIZER,
    GRACE_S,
    AwaitPurge,
    Deletion,
    LetGo,
    StartPurge,
    await_or_release,
    observe_purge,
    plan_deletion,
    purge_name,
)
from fleetward_operator.manifests.tenant_purge import build_tenant_purge

DELETED = "2026-01-01T00:00:00Z"
NOW = dt.datetime.fromisoformat(DELETED) + dt.timedelta(hours=1)
DEADLINE_S = 300.0


def tenant(**changes: Any) -> ObjectMeta:
    base: dict[str, Any] = {
        "name": "acme",
        "uid": "uid-1",
        "deletionTimestamp": DELETED,
        "finalizers": ["someone.test/else", FINALIZER],
    }
    return ObjectMeta.model_validate({**base, **changes})


def purge(phase: str | None = None, *, of: str = "acme", made_s: float = 0.0) -> dict[str, Any]:
    created = (NOW - dt.timedelta(seconds=made_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {} if phase is None else {"phase": phase, "evidenceDigest": "sha256:e", "message": "m"}
    return {
        "metadata": {"name": purge_name(tenant()), "creationTimestamp": created},
        "spec": {"tenant": of},
        "status": status,
    }


def plan(metadata: ObjectMeta, found: dict[str, Any] | None = None) -> Deletion | None:
    seen = None if found is None else observe_purge(found)
    return plan_deletion(metadata, seen, deadline_s=DEADLINE_S, now=NOW)


def test_a_deletion_begins_with_its_purge_however_long_nobody_led() -> None:
    assert plan(tenant()) == StartPurge(name=purge_name(tenant()))


def test_a_tenant_that_lives_or_is_not_held_is_let_be() -> None:
    assert plan(tenant(deletionTimestamp=None)) is None
    assert plan(tenant(finalizers=["someone.test/else"])) is None


@pytest.mark.parametrize(
    ("phase", "reason"),
    [("Completed", "TenantPurged"), ("Incomplete", "TenantPurgeIncomplete")],
)
def test_it_goes_when_its_purge_has_ended_and_the_event_names_it(phase: str, reason: str) -> None:
    step = plan(tenant(), purge(phase))
    assert isinstance(step, LetGo)
    assert step.announcement.reason == reason
    assert purge_name(tenant()) in step.announcement.message


@pytest.mark.parametrize("phase", [None, "Pending", "Fencing", "Purging", "Verifying", "Odd"])
def test_it_waits_while_its_purge_runs_and_no_longer_than_the_bound(phase: str | None) -> None:
    assert isinstance(plan(tenant(), purge(phase)), AwaitPurge)
    late = plan(tenant(), purge(phase, made_s=DEADLINE_S + GRACE_S + 1))
    assert isinstance(late, LetGo)
    assert late.announcement.reason == "TenantReleased"


def test_a_purge_of_another_tenant_proves_nothing() -> None:
    assert isinstance(plan(tenant(), purge("Completed", of="other")), AwaitPurge)


@pytest.mark.parametrize("found", [None, purge(), purge("Completed")])
def test_broken_glass_goes_before_everything(found: dict[str, Any] | None) -> None:
    step = plan(tenant(annotations={BREAK_GLASS: "cluster is going away"}), found)
    assert isinstance(step, LetGo)
    assert step.announcement.reason == "TenantReleased"
    assert "cluster is going away" in step.announcement.message
    assert plan(tenant(annotations={BREAK_GLASS: "x"}, deletionTimestamp=None), found) is None


@given(st.floats(), st.floats(min_value=1, max_value=1e6))
def test_no_wait_is_longer_than_the_bound(waited_s: float, deadline_s: float) -> None:
    step = await_or_release("why", waited_s=waited_s, deadline_s=deadline_s)
    ends = isinstance(step, LetGo)
    assert ends == (not waited_s < deadline_s + GRACE_S)
    assert isinstance(step, LetGo) or step.look_again_s > 0


@given(st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True), st.uuids(), st.uuids())
def test_each_deletion_has_a_purge_of_its_own_that_the_rules_accept(
    name: str, one: Any, other: Any
) -> None:
    first = tenant(name=name, uid=str(one))
    manifest = build_tenant_purge(
        purge_name(first), tenant=name, tenant_uid=first.uid, deadline_s=300
    )
    parsed = CachePurge.parse(manifest)
    assert parsed.spec.tenant == name
    again = tenant(name=name, uid=str(one), deletionTimestamp="2026-01-02T00:00:00Z")
    assert purge_name(again) != purge_name(first)
    assert (purge_name(tenant(name=name, uid=str(other))) == purge_name(first)) == (one == other)
