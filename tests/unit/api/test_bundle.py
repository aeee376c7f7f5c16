"""Policy bundles: digests, wire form, secrets."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fleetward_api.bundle import (
    Admission,
    BundlePush,
    Deletion,
    EpochSecret,
    Eviction,
    GatewayBundle,
    PolicyBundle,
    Quota,
    Retention,
    RetentionClass,
    Scheduling,
    ServiceRef,
    SharedPrefix,
)
from fleetward_api.canonical import canonical_bytes, parse_model
from fleetward_api.floors import Floors
from fleetward_api.scope import Scope

SERVICE = ServiceRef(namespace="default", name="chat", uid="uid-1")
BUNDLE = PolicyBundle(service=SERVICE, generation=4, epoch=1)


def test_the_contents_have_a_digest_apart_from_the_generation() -> None:
    later = BUNDLE.model_copy(update={"generation": 5})
    assert later.content_digest == BUNDLE.content_digest
    assert later.digest != BUNDLE.digest


@pytest.mark.parametrize(
    "changes",
    [
        {"epoch": 2},
        {"isolation": "User"},
        {"permission_scopes": "Ignore"},
        {"policy_name": "strict"},
        {"policy_generation": 2},
        {"retention": Retention(classes={"short": RetentionClass(idle_ttl_ms=1)})},
        {"deletion": Deletion(scrub=False)},
        {"eviction": Eviction(policy="Priority")},
        {"quota": Quota(max_share_percent=50)},
        {"scheduling": Scheduling(policy="WeightedFair")},
        {"shared_prefixes": (SharedPrefix(name="city", text="You help."),)},
        {"floors": Floors().raised(Scope("acme"))},
        {"service": SERVICE.model_copy(update={"uid": "uid-2"})},
    ],
)
def test_every_change_of_policy_changes_the_content_digest(changes: dict[str, Any]) -> None:
    assert BUNDLE.model_copy(update=changes).content_digest != BUNDLE.content_digest


@given(st.integers(0, 2**63 - 1), st.sampled_from(["Tenant", "User", "Session"]))
def test_a_bundle_survives_the_wire(generation: int, isolation: Any) -> None:
    bundle = PolicyBundle(service=SERVICE, generation=generation, epoch=1, isolation=isolation)
    push = BundlePush(bundle=bundle, epoch=EpochSecret.of(1, b"s" * 32))
    again = parse_model(BundlePush, canonical_bytes(push))
    assert again == push
    assert again.bundle.digest == bundle.digest


def test_a_bundle_is_written_as_the_contracts_say() -> None:
    assert set(BUNDLE.model_dump(by_alias=True)) == {
        *("wireVersion", "service", "generation", "policyName", "policyGeneration", "epoch"),
        *("isolation", "permissionScopes", "retention", "deletion", "floors"),
    }
    assert set(GatewayBundle.of(Floors()).model_dump(by_alias=True)) == {
        *("wireVersion", "generation", "floors"),
    }


def test_a_later_part_is_written_only_where_it_says_something() -> None:
    eviction, quota = Eviction(protected_share_percent=20), Quota(max_share_percent=50)
    prefixes = (SharedPrefix(name="city", text="You help."),)
    parts = {"eviction": eviction, "quota": quota, "shared_prefixes": prefixes}
    told = BUNDLE.model_copy(update=parts)
    written = told.model_dump(by_alias=True)
    assert written["sharedPrefixes"] == ({"name": "city", "text": "You help."},)
    assert "shared_prefixes" not in BUNDLE.model_dump(by_alias=False)
    assert written["eviction"] == {"policy": "LRU", "protectedSharePercent": 20}
    assert written["quota"] == {"maxSharePercent": 50, "guaranteedSharePercent": 0}
    for push in (BundlePush(bundle=told), BundlePush(bundle=BUNDLE)):
        assert parse_model(BundlePush, canonical_bytes(push)) == push


def test_admission_is_written_only_where_it_says_something() -> None:
    fair = BUNDLE.model_copy(update={"scheduling": Scheduling(policy="WeightedFair")})
    assert fair.model_dump(by_alias=True)["scheduling"] == {
        "policy": "WeightedFair",
        "agingAfterMs": None,
    }
    limits = Admission(max_predicted_wait_ms=5)
    told = BUNDLE.model_copy(update={"scheduling": Scheduling(admission=limits)})
    assert told.model_dump(by_alias=True)["scheduling"]["admission"] == {
        "maxPredictedWaitMs": 5,
        "kvHeadroomPercent": None,
    }
    for push in (BundlePush(bundle=told), BundlePush(bundle=fair)):
        assert parse_model(BundlePush, canonical_bytes(push)) == push


@pytest.mark.parametrize(
    "values",
    [
        {"maxPredictedWaitMs": 0},
        {"kvHeadroomPercent": -1},
        {"kvHeadroomPercent": 100},
    ],
)
def test_limits_that_let_nobody_in_are_none(values: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        Admission.model_validate(values)


@pytest.mark.parametrize(
    "values",
    [
        {"maxSharePercent": 0},
        {"maxSharePercent": 101},
        {"guaranteedSharePercent": 1},
        {"maxSharePercent": 60, "guaranteedSharePercent": 41},
    ],
)
def test_shares_that_contradict_each_other_are_no_quota(values: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        Quota.model_validate(values)


@pytest.mark.parametrize(
    "values",
    [
        {"policy": "Priority"},
        {"policy": "WeightedFair", "agingAfterMs": 5},
        {"agingAfterMs": 5},
        {"policy": "Priority", "agingAfterMs": 0},
    ],
)
def test_an_order_that_starves_or_means_nothing_is_none(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Scheduling.model_validate(values)


def test_a_gateways_generation_is_the_version_of_its_floors() -> None:
    floors = Floors().raised(Scope("a")).raised(Scope("b"))
    assert GatewayBundle.of(floors).generation == 2


def test_the_epoch_secret_does_not_show() -> None:
    secret = EpochSecret.of(3, b"s" * 32)
    assert secret.raw == b"s" * 32
    assert secret.secret not in repr(secret)
    assert secret.secret not in repr(BundlePush(bundle=BUNDLE, epoch=secret))


@pytest.mark.parametrize("secret", ["", "c2hvcnQ=", base64.b64encode(b"s" * 33).decode(), "é"])
def test_an_epoch_secret_is_32_bytes(secret: str) -> None:
    with pytest.raises(ValidationError, match="epoch secret"):
        EpochSecret(number=1, secret=secret)


@pytest.mark.parametrize(
    "changes",
    [
        {"generation": -1},
        {"generation": 2**63},
        {"generation": True},
        {"isolation": "tenant"},
        {"unknown": 1},
        {"service": None},
    ],
)
def test_a_malformed_bundle_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PolicyBundle.model_validate({**BUNDLE.model_dump(), **changes})
