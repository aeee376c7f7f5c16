"""The pure rules of policy: what a push changes, how long cache lives, who may reuse what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.bundle import EpochSecret, Retention, RetentionClass
from fleetward_api.cache_key import ModelFingerprint
from fleetward_api.floors import Floors
from fleetward_api.scope import Scope
from fleetward_engine.admin.policy import Apply, PolicyInForce, Refuse, Repeat, decide_push
from fleetward_engine.admin.retention import effective_retention, live_limits, shorter
from fleetward_engine.server.cache_context import cache_context
from fleetward_engine.server.identity import Caller
from tests.support.engine_server import SERVICE_UID, bundle, push

MODEL = ModelFingerprint("sha256:m", "", "sha256:t", "layout")
ttls = st.one_of(st.none(), st.integers(0, 10_000))
classes = st.builds(
    RetentionClass,
    store=st.sampled_from(["None", "Device", "DeviceAndHost"]),
    idle_ttl_ms=ttls,
    max_ttl_ms=ttls,
)
retentions = st.builds(
    Retention,
    idle_ttl_ms=ttls,
    max_ttl_ms=ttls,
    classes=st.dictionaries(st.sampled_from(["x", "y"]), classes),
)
floor_maps = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 5))
callers = st.builds(
    Caller,
    tenant=st.sampled_from(["a", "b"]),
    permission_scope=st.sampled_from(["", "p"]),
    document_tags=st.sampled_from([(), ("t",)]),
    floors=st.tuples(st.integers(0, 3), st.just(0), st.integers(0, 2), st.integers(0, 2)),
).map(lambda one: replace(one, permission_scopes=tuple(one.permission_scope)))


def in_force(generation: int = 3, **fields: object) -> PolicyInForce:
    made = bundle(generation, **fields)
    return PolicyInForce(bundle=made, secret=b"s" * 32, floors=made.floors)


def at_most(limit: int | None, other: int | None) -> bool:
    return other is None or (limit is not None and limit <= other)


@given(retention=retentions, name=st.sampled_from(["", "x", "y", "gone"]))
def test_a_class_never_outlives_the_policy(retention: Retention, name: str) -> None:
    effective = effective_retention(retention, name)
    if effective.store != "None":
        assert at_most(effective.idle_ttl_ms, retention.idle_ttl_ms)
        assert at_most(effective.max_ttl_ms, retention.max_ttl_ms)
    if name and name not in retention.classes:
        assert effective.store == "None"


@given(before=retentions, after=retentions, name=st.sampled_from(["", "x", "y"]))
def test_nothing_cached_outlives_a_stricter_policy(
    before: Retention, after: Retention, name: str
) -> None:
    made_under = effective_retention(before, name)
    if made_under.store == "None":
        return
    limits, now = live_limits(before, after), effective_retention(after, name)
    left = shorter(made_under.idle_ttl_ms, limits.idle_ttl_ms)
    assert at_most(left, 0 if now.store == "None" else now.idle_ttl_ms)
    left = shorter(made_under.max_ttl_ms, limits.max_ttl_ms)
    assert at_most(left, 0 if now.store == "None" else now.max_ttl_ms)


@given(retention=retentions)
def test_the_same_policy_again_shortens_nothing(retention: Retention) -> None:
    limits = live_limits(retention, retention)
    assert (limits.idle_ttl_ms, limits.max_ttl_ms) == (
        retention.idle_ttl_ms, retention.max_ttl_ms,
    )  # fmt: skip


@given(known=floor_maps, pushed=floor_maps)
def test_floors_only_grow_and_every_rise_is_fenced(
    known: dict[str, int], pushed: dict[str, int]
) -> None:
    verdict = decide_push(
        in_force(),
        push(4, floors=Floors(tenants=pushed)),
        known=Floors(tenants=known),
        service_uid=SERVICE_UID,
    )
    assert isinstance(verdict, Apply)
    raised = dict(verdict.raised)
    for tenant in known.keys() | pushed.keys():
        now = verdict.policy.floors.floor_of(Scope(tenant=tenant))
        assert now == max(known.get(tenant, 0), pushed.get(tenant, 0))
        rises = now > known.get(tenant, 0)
        assert (raised.get(Scope(tenant=tenant)) == now) is rises


def test_generations_decide() -> None:
    current = in_force(3)

    def decide(generation: int, **fields: Any) -> Apply | Repeat | Refuse:
        pushed = push(generation, **fields)
        return decide_push(current, pushed, known=Floors(), service_uid=SERVICE_UID)

    assert isinstance(decide(3), Repeat)
    assert isinstance(decide(4), Apply)
    stale, conflict = decide(2), decide(3, policy_name="other")
    assert isinstance(stale, Refuse)
    assert isinstance(conflict, Refuse)
    assert (stale.code, conflict.code) == ("stale_generation", "generation_conflict")
    foreign = decide_push(None, push(9), known=Floors(), service_uid="other")
    assert isinstance(foreign, Refuse)
    assert foreign.code == "wrong_service"


def test_a_new_epoch_needs_its_secret_and_drops_what_the_old_one_keyed() -> None:
    current = in_force(3)
    new = push(4, epoch=2, secret=b"n" * 32)
    verdict = decide_push(current, new, known=Floors(), service_uid=SERVICE_UID)
    assert isinstance(verdict, Apply)
    assert verdict.policy.secret == b"n" * 32
    assert verdict.ttls is not None
    assert (verdict.ttls.idle_ttl_ms, verdict.ttls.max_ttl_ms) == (0, 0)
    other = push(4, epoch=2).model_copy(update={"epoch": EpochSecret.of(1, b"s" * 32)})
    refused = decide_push(current, other, known=Floors(), service_uid=SERVICE_UID)
    assert isinstance(refused, Refuse)
    assert refused.code == "epoch_missing"
    kept = decide_push(current, push(4, secret=None), known=Floors(), service_uid=SERVICE_UID)
    assert isinstance(kept, Apply)
    assert kept.policy.secret == current.secret


@given(first=callers, second=callers, floors=floor_maps)
def test_reuse_needs_every_fact_equal_and_no_fence_between(
    first: Caller, second: Caller, floors: dict[str, int]
) -> None:
    policy = in_force(floors=Floors(tenants=floors))
    one = cache_context(first, policy, model=MODEL)
    two = cache_context(second, policy, model=MODEL)
    for caller, context in ((first, one), (second, two)):
        fenced = policy.floors.of_request(
            caller.tenant,
            user="",
            permission_scopes=caller.permission_scopes,
            document_tags=caller.document_tags,
        )
        behind = any(known < floor for known, floor in zip(caller.floors, fenced, strict=True))
        assert (context.root is None) is behind
        assert context.store is not behind
        assert context.owner.standings[0] == (Scope(tenant=caller.tenant), caller.floors[0])
    if one.root is not None:
        assert (one.root == two.root) is (first == second)


@pytest.mark.parametrize(
    ("raised", "place"),
    [({"users": {"a/u": 2}}, 1), ({"permission_scopes": {"a/p": 2}}, 2),
     ({"document_tags": {"a/t": 2}}, 3)],
)  # fmt: skip
def test_a_finer_floor_closes_the_cache_to_older_tokens(
    raised: dict[str, dict[str, int]], place: int
) -> None:
    policy = in_force(floors=Floors(**raised))
    for known in (1, 2, 3):
        floors = [0, 0, 0, 0]
        floors[place] = known
        caller = Caller(
            tenant="a", user="u", permission_scope="p", permission_scopes=("p",),
            document_tags=("t",),
            floors=(floors[0], floors[1], floors[2], floors[3]),
        )  # fmt: skip
        assert (cache_context(caller, policy, model=MODEL).root is None) is (known < 2)


def test_ignored_permission_scopes_do_not_part_the_cache() -> None:
    policy = in_force(permission_scopes="Ignore")
    roots = {
        cache_context(Caller(tenant="a", permission_scope=scope), policy, model=MODEL).root
        for scope in ("", "p", "q")
    }
    assert len(roots) == 1
