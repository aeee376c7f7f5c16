"""The statuses of tenants, policies and purges."""

from __future__ import annotations

import base64
import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.bundle import PolicyBundle, ServiceRef
from fleetward_api.condition_types import condition_types, undocumented
from fleetward_api.conditions import find_condition
from fleetward_api.resources import CachePurge, Tenant
from fleetward_api.resources.cache_policy import SaltRotationStatus
from fleetward_api.scope import (
    Scope,
    document_tag_digest,
    permission_scope_digest,
    user_digest,
)
from fleetward_operator.core.gate import Refusal
from fleetward_operator.core.policy_plan import Follower, plan_policy
from fleetward_operator.core.purge.plan import (
    LOST_RECORD,
    PurgePlan,
    first_state,
    plan_purge,
    resumed_plan,
)
from fleetward_operator.core.purge.report import (
    build_purge_status,
    invalid_purge_status,
    refused_status,
)
from fleetward_operator.core.purge.state import Member, Phase, PurgeState, Standing
from fleetward_operator.core.tenant_plan import plan_tenant
from fleetward_operator.edges.store import trim_secret
from fleetward_operator.handlers.policy import enforced
from tests.support.operator_facts import NOW, policy, service

EPOCH = SaltRotationStatus(epoch=3, rotated_at="2026-01-01T00:00:00Z")
SECRETS = {"one": frozenset({"key"}), "two": frozenset({"other"})}


def tenant(*keys: dict[str, Any], deleting: bool = False) -> Tenant:
    metadata: dict[str, Any] = {"name": "alpha", "uid": "t", "generation": 2}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return Tenant.parse(
        {
            "apiVersion": "fleetward.io/v1alpha1",
            "kind": "Tenant",
            "metadata": metadata,
            "spec": {"apiKeys": list(keys)},
        }
    )


def key(name: str, held_in: str = "one", **more: Any) -> dict[str, Any]:
    return {"name": name, "secretRef": {"name": held_in}, **more}


@pytest.mark.parametrize(
    ("keys", "ready", "all_ready"),
    [
        ([], "False/NoKeys", "False/NoKeys"),
        ([key("a")], "True/KeysWork", "True/AllKeysWork"),
        ([key("a"), key("b", "gone")], "True/KeysWork", "False/KeysMissing"),
        ([key("a", "gone")], "False/KeysMissing", "False/KeysMissing"),
        ([key("a", "two")], "False/KeysMissing", "False/KeysMissing"),
        (
            [key("a", expiresAt="2025-01-01T00:00:00Z")],
            "False/KeysExpired",
            "False/KeysExpired",
        ),
    ],
)
def test_a_tenants_keys_are_judged_by_secret_and_expiry(
    keys: list[dict[str, Any]], ready: str, all_ready: str
) -> None:
    status = plan_tenant(tenant(*keys), SECRETS, key_namespace="keys", now=NOW).status
    found = {one.type: f"{one.status}/{one.reason}" for one in status.conditions}
    assert found == {"Ready": ready, "KeysReady": all_ready}
    assert undocumented("Tenant", status.conditions) == ()
    assert status.keys == len(keys)


def test_an_entry_that_cannot_be_a_key_counts_as_none() -> None:
    values = {"good": b"k" * 16 + b"\n", "short": b"k" * 15, "long": b"k" * 513, "empty": b""}
    data = {name: base64.b64encode(value).decode() for name, value in values.items()}
    kept = trim_secret({"metadata": {"name": "one"}, "data": {**data, "odd": "!"}})
    assert kept["data"] == {"good": ""}
    plan = plan_tenant(tenant(key("a")), {"one": frozenset()}, key_namespace="keys", now=NOW)
    assert "16 to 512 characters" in (plan.status.message or "")


def test_a_key_wakes_its_tenant_when_it_expires() -> None:
    soon = (NOW + dt.timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    plan = plan_tenant(tenant(key("a", expiresAt=soon)), SECRETS, key_namespace="keys", now=NOW)
    assert plan.requeue_after == 301.0
    assert plan.status.ready_keys == 1


def test_a_tenant_on_its_way_out_says_so() -> None:
    plan = plan_tenant(tenant(key("a"), deleting=True), SECRETS, key_namespace="keys", now=NOW)
    ready = find_condition(plan.status.conditions, "Ready")
    assert ready is not None
    assert ready.reason == "Deleting"


@pytest.mark.parametrize(
    ("followers", "default", "verdict"),
    [
        ([], "", "True/Unused"),
        ([Follower(name="a", generation=3)], "", "True/InUse"),
        ([Follower(name="a", generation=2)], "", "False/WaitingForAcks"),
        ([Follower(name="a", generation=3), Follower(name="b", generation=0)], "", "False/Wai"),
    ],
)
def test_a_policy_is_in_use_when_all_followers_have_this_generation(
    followers: list[Follower], default: str, verdict: str
) -> None:
    status = plan_policy(policy("strict"), followers, default_name=default, epoch=EPOCH, now=NOW)
    (ready,) = status.conditions
    assert f"{ready.status}/{ready.reason}".startswith(verdict)
    assert undocumented("CachePolicy", status.conditions) == ()
    assert status.services == len(followers)


def test_what_a_service_said_of_the_policy_before_counts_for_none_other() -> None:
    condition = {
        "type": "CachePolicyEnforced",
        "status": "True",
        "reason": "AllAcked",
        "message": "It is.",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1,
    }
    in_force = {"name": "old", "generation": 1, "bundleGeneration": 1}
    told = service(status={"cachePolicy": in_force, "conditions": [condition]})
    assert enforced(told, "old") == 1
    # Both policies may well be at generation 1.
    assert enforced(told, "new") == 0


def test_a_second_default_says_which_is_older() -> None:
    second = policy("second", namespaceDefault=True)
    status = plan_policy(second, [], default_name="first", epoch=EPOCH, now=NOW)
    assert status.conditions[0].reason == "NotDefault"
    assert "CachePolicy first is older" in status.conditions[0].message


def purge(**spec: Any) -> CachePurge:
    return CachePurge.parse(
        {
            "apiVersion": "fleetward.io/v1alpha1",
            "kind": "CachePurge",
            "metadata": {
                "name": "wipe",
                "uid": "p",
                "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"tenant": "alpha", "reason": "asked to", **spec},
        }
    )


DIGEST_KEY = b"k" * 32


def rules(name: str = "s", **fields: Any) -> PolicyBundle:
    service = ServiceRef(namespace="n", name=name, uid=name)
    return PolicyBundle(service=service, generation=1, epoch=1, **fields)


def planned(*bundles: PolicyBundle, **spec: Any) -> PurgePlan | Refusal:
    return plan_purge(purge(**spec), digest_key=DIGEST_KEY, bundles=bundles)


FINER = {
    "user": Scope("alpha", user=user_digest(DIGEST_KEY, "alpha", "Zoë")),
    "permissionScope": Scope(
        "alpha", permission_scope=permission_scope_digest(DIGEST_KEY, "alpha", ["Zoë"])
    ),
    "documentTag": Scope("alpha", document_tag=document_tag_digest(DIGEST_KEY, "alpha", "Zoë")),
}


@pytest.mark.parametrize("field", FINER)
def test_a_finer_scope_is_purged_where_every_service_tells_it_apart(field: str) -> None:
    apart = [rules(isolation="User"), rules("t", isolation="Session")]
    plan = planned(*apart, **{field: "Zoë"})
    assert isinstance(plan, PurgePlan)
    assert (plan.scope, plan.widened_to, plan.widened) == (FINER[field], "", False)
    assert isinstance(planned(*apart, **{field: "Zoë"}, onCoarseIsolation="Refuse"), PurgePlan)


@pytest.mark.parametrize("field", FINER)
def test_one_service_that_shares_widens_it_to_the_tenant_or_refuses(field: str) -> None:
    coarse = [rules(isolation="User"), *(rules(name, permission_scopes="Ignore") for name in "abc")]
    plan = planned(*coarse, **{field: "Zoë"}, serviceSelector={})
    refused = planned(*coarse, **{field: "Zoë"}, onCoarseIsolation="Refuse")
    assert isinstance(plan, PurgePlan)
    if field == "documentTag":
        assert (plan.scope, plan.widened_to, plan.widened) == (FINER[field], "all services", False)
        assert isinstance(refused, PurgePlan)
        return
    assert (plan.scope, plan.widened) == (Scope("alpha"), True)
    words = "tenant alpha (n/a, n/b and 1 more shares within it), all services"
    assert plan.widened_to == words
    assert isinstance(refused, Refusal)
    assert "n/a, n/b and 1 more" in refused.message
    assert "Zoë" not in refused.message


def test_a_purge_that_runs_keeps_the_scope_of_its_cut() -> None:
    subject = purge(user="Zoë")
    assert resumed_plan(subject, scope=FINER["user"]).widened is False
    plan = resumed_plan(subject, scope=Scope("alpha"))
    assert (plan.scope, plan.widened) == (Scope("alpha"), True)
    assert resumed_plan(purge(), scope=Scope("alpha")).widened is False


def test_a_purge_has_until_its_deadline_from_its_making() -> None:
    plan = planned(deadline="2m")
    assert isinstance(plan, PurgePlan)
    made = dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp()
    assert (plan.scope.tenant, plan.widened_to, plan.deadline) == ("alpha", "", made + 120)


def test_a_selector_is_widened_or_refused() -> None:
    widened = planned(serviceSelector={})
    assert isinstance(widened, PurgePlan)
    assert widened.widened_to == "all services"
    refusal = planned(serviceSelector={}, onCoarseIsolation="Refuse")
    assert isinstance(refusal, Refusal)
    status = refused_status(purge(), refusal, now=NOW)
    assert (status.phase, status.not_covered[0].subject) == ("Incomplete", "everything")
    assert undocumented("CachePurge", status.conditions) == ()


@pytest.mark.parametrize(
    ("before", "caveats"),
    [(None, ()), ("Pending", ()), ("Fencing", (LOST_RECORD,)), ("Purging", (LOST_RECORD,))],
)
def test_a_record_that_was_lost_is_never_forgiven(
    before: str | None, caveats: tuple[str, ...]
) -> None:
    plan = planned()
    assert isinstance(plan, PurgePlan)
    assert first_state(plan, phase_before=before).caveats == caveats


standings = st.sampled_from([Standing.EXPECTED, Standing.FENCED, Standing.DEAD, Standing.UNPROVED])
states = st.builds(
    PurgeState,
    phase=st.sampled_from(list(Phase)),
    deadline=st.just(9.0),
    started_at=st.sampled_from([0.0, 1.0]),
    caveats=st.sampled_from([(), (LOST_RECORD,)]),
    members=st.lists(
        st.builds(
            Member,
            kind=st.sampled_from(["engine", "gateway"]),
            namespace=st.just("apps"),
            name=st.text("ab", min_size=1, max_size=3),
            uid=st.uuids().map(str),
            standing=standings,
            detail=st.sampled_from(["", "the deadline passed while waiting for its receipt"]),
        ),
        max_size=4,
        unique_by=lambda one: one.uid,
    ).map(tuple),
)


@given(states)
def test_a_purges_status_is_whole_documented_and_steady(state: PurgeState) -> None:
    def status_of(subject: CachePurge, now: dt.datetime) -> Any:
        return build_purge_status(subject, state, scope_digest="a" * 64, widened_to="", now=now)

    status = status_of(purge(), NOW)
    assert undocumented("CachePurge", status.conditions) == ()
    assert [one.type for one in status.conditions] == [
        one.type for one in condition_types("CachePurge")
    ]
    again = status_of(purge().model_copy(update={"status": status}), NOW + dt.timedelta(minutes=1))
    assert again == status
    if status.phase == "Completed":
        assert find_condition(status.conditions, "Failed").status == "False"  # type: ignore[union-attr]


def test_an_unreadable_purge_does_not_run_and_says_why() -> None:
    status = invalid_purge_status("spec.user: no", before=purge().status, generation=1, now=NOW)
    assert undocumented("CachePurge", status.conditions) == ()
    assert status.phase is None


def test_only_a_policy_that_rotates_tells_of_the_epoch() -> None:
    told = [
        plan_policy(one, [], default_name="", epoch=EPOCH, now=NOW).salt_rotation
        for one in (policy("plain"), policy("rotating", saltRotation="24h"))
    ]
    assert told == [None, EPOCH]
