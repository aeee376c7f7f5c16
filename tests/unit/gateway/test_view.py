"""The view of the cluster: live changes, last good versions, faults by name."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.keys import SealingKey, SigningKey
from fleetward_gateway.admission.keyring import KeyHasher
from fleetward_gateway.cluster.trim import trim_key_secret, trim_resource, trim_slice
from fleetward_gateway.cluster.view import ClusterView
from fleetward_gateway.routing.endpoints import endpoints_of_slice
from tests.support.gateway import KEY_A, b64, endpoint_slice, key_secret, service, tenant

HASHER = KeyHasher(b"x" * 32)


def put_secret(view: ClusterView, item: dict[str, Any]) -> None:
    name = item["metadata"]["name"]
    view.on_secret(f"fleetward-keys/{name}", None, trim_key_secret(HASHER)(item))


def opens(view: ClusterView, key: str) -> bool:
    return HASHER.digest(key.encode()) in view.key_index.grants


def test_order_of_arrival_does_not_matter() -> None:
    first, second = ClusterView(), ClusterView()
    first.on_tenant("a", None, tenant("a"))
    assert not opens(first, KEY_A)
    assert [kind for kind, _ in first.faults] == ["key"]
    put_secret(first, key_secret("a-key", KEY_A))
    put_secret(second, key_secret("a-key", KEY_A))
    second.on_tenant("a", None, tenant("a"))
    assert opens(first, KEY_A)
    assert opens(second, KEY_A)
    assert first.faults == second.faults == {}


def test_a_service_where_none_may_be_holds_no_name() -> None:
    view = ClusterView(("apps",))
    squatter = service("s", namespace="elsewhere", created="2025-01-01T00:00:00Z")
    view.on_service("elsewhere/s", None, squatter)
    assert dict(view.catalogue.owners) == {}
    view.on_service("apps/s", None, service("s"))
    assert view.catalogue.owners["m"].namespace == "apps"
    assert view.catalogue.conflicts == ()


def test_an_unreadable_tenant_or_service_keeps_its_last_good_version() -> None:
    view = ClusterView()
    put_secret(view, key_secret("a-key", KEY_A))
    view.on_tenant("a", None, tenant("a"))
    view.on_tenant("a", {}, tenant("a", futureField=True))
    assert opens(view, KEY_A)
    assert "last good version stays" in view.faults["Tenant", "a"]
    view.on_service("apps/s", None, service("s"))
    broken = service("s")
    broken["spec"]["model"] = {"name": 7}
    view.on_service("apps/s", {}, broken)
    view.on_service("apps/new", None, broken)
    assert set(view.catalogue.owners) == {"m"}
    assert "left out" in view.faults["InferenceService", "apps/new"]
    view.on_tenant("a", {}, tenant("a"))
    view.on_service("apps/s", {}, service("s"))
    view.on_service("apps/new", {}, None)
    assert view.faults == {}


def test_a_deleted_tenant_or_service_is_gone_at_once() -> None:
    view = ClusterView()
    put_secret(view, key_secret("a-key", KEY_A))
    deleting = tenant("a")
    view.on_tenant("a", None, deleting)
    assert opens(view, KEY_A)
    deleting = tenant("a")
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    view.on_tenant("a", {}, deleting)
    assert not opens(view, KEY_A)
    view.on_service("apps/s", None, service("s"))
    view.on_service("apps/s", {}, None)
    assert view.catalogue.owners == {}


def test_two_services_with_one_name_are_told() -> None:
    view = ClusterView()
    view.on_service("apps/new", None, service("new", created="2027-01-01T00:00:00Z"))
    view.on_service("apps/old", None, service("old"))
    assert view.catalogue.owners["m"].name == "old"
    assert any("m belongs to apps/old" in text for _, text in view.faults)
    view.on_service("apps/old", {}, None)
    assert view.catalogue.owners["m"].name == "new"
    assert view.faults == {}


def test_a_status_change_alone_does_not_rebuild_the_catalogue() -> None:
    view = ClusterView()
    view.on_service("apps/s", None, service("s"))
    before = view.catalogue
    view.on_service("apps/s", {}, service("s"))
    assert view.catalogue is before


@given(st.lists(st.integers(0, 50), max_size=6))
def test_floors_never_fall_whatever_the_config_map_says(versions: list[int]) -> None:
    view = ClusterView()
    highest = 0
    for number in versions:
        text = f'{{"version":{number},"tenants":{{"a":{number}}}}}'
        view.on_floors("n/f", None, {"data": {"floors.json": text}})
        highest = max(highest, number)
        assert (view.floors.version, view.floors.tenants.get("a", 0)) == (highest, highest)


@pytest.mark.parametrize("text", ["", "{", '{"version":-1}', '{"version":"1"}', "[]", '{"x":1}'])
def test_unreadable_or_deleted_floors_keep_the_last(text: str) -> None:
    view = ClusterView()
    view.on_floors("n/f", None, {"data": {"floors.json": text}})
    assert not view.floors_known
    assert "the ConfigMap fleetward-floors" in view.missing()
    view.on_floors("n/f", None, {"data": {"floors.json": '{"version":3}'}})
    view.on_floors("n/f", {}, {"data": {"floors.json": text}})
    view.on_floors("n/f", {}, None)
    assert view.floors.version == 3
    assert view.floors_known
    assert ("ConfigMap", "n/f") in view.faults


def test_keys_of_the_gateway_rotate_and_survive_bad_or_missing_ones() -> None:
    view = ClusterView()
    first, second = SigningKey.generate(), SigningKey.generate()

    def secret(key: SigningKey) -> dict[str, Any]:
        return {"data": {"signing.pem": b64(key.to_pem()), "digest.key": b64(b"d" * 32)}}

    view.on_own_keys("n/k", None, {"data": {"signing.pem": b64(b"x"), "digest.key": b64(b"y")}})
    assert view.own_keys is None
    view.on_own_keys("n/k", None, secret(first))
    view.on_own_keys("n/k", {}, {"data": {"signing.pem": "***"}})
    view.on_own_keys("n/k", {}, None)
    assert view.own_keys is not None
    assert view.own_keys.signing.verify_key.key_id == first.verify_key.key_id
    view.on_own_keys("n/k", {}, secret(second))
    assert view.own_keys.signing.verify_key.key_id == second.verify_key.key_id
    trust = {
        "operator.pub": first.verify_key.to_b64(),
        "sealing.pub": SealingKey.generate().public.to_b64(),
    }
    view.on_trust("n/t", None, {"data": trust})
    view.on_trust("n/t", {}, {"data": {"operator.pub": "x"}})
    assert view.trust is not None
    assert ("ConfigMap", "n/t") in view.faults


def test_what_is_kept_of_a_key_secret_is_no_key() -> None:
    item = key_secret("a-key", KEY_A)
    item["data"]["broken"] = "not base64!"
    item["metadata"]["annotations"] = {"last-applied": KEY_A}
    trimmed = trim_key_secret(HASHER)(item)
    assert KEY_A not in str(trimmed)
    assert base64.b64encode(KEY_A.encode()).decode() not in str(trimmed)
    assert trimmed["digests"] == {"key": HASHER.digest(KEY_A.encode()), "broken": None}
    assert trim_key_secret(HASHER)({"metadata": {"name": "empty"}})["digests"] == {}


def test_trimming_keeps_what_is_read_later() -> None:
    item = {**service("s"), "status": {"big": 1}, "kind": "InferenceService"}
    assert set(trim_resource(item)) == {"metadata", "spec"}
    assert trim_resource({"metadata": {"name": "x"}}) == {"metadata": {"name": "x"}, "spec": {}}
    whole = endpoint_slice(
        "x",
        service="s",
        port=1,
        endpoints=[{"addresses": ["10.0.0.1"], "conditions": None, "nodeName": "n"}, {}],
    )
    assert endpoints_of_slice(trim_slice(whole)) == endpoints_of_slice(whole)
    bare = {"metadata": {"name": "x"}, "endpoints": None, "ports": None}
    assert endpoints_of_slice(trim_slice(bare)) == ()
