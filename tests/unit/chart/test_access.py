"""What the chart lets its service accounts do: no wildcard, no Secret beyond the named ones."""

from __future__ import annotations

import itertools

import pytest

from tests.support.chart import Manifest, named, of_kind

WRITES = {"create", "update", "patch", "delete", "deletecollection"}


def rules(manifests: list[Manifest], *kinds: str) -> list[tuple[str, Manifest]]:
    """Every rule of roles of these kinds, with the role's name."""
    return [
        (role["metadata"]["name"], rule)
        for role in of_kind(manifests, *kinds)
        for rule in role["rules"]
    ]


def test_no_rule_has_a_wildcard(rendered: list[Manifest]) -> None:
    found = rules(rendered, "Role", "ClusterRole")
    assert found
    for name, rule in found:
        words = itertools.chain(rule["apiGroups"], rule["resources"], rule["verbs"])
        assert "*" not in "".join(words), f"{name} has a wildcard: {rule}"
        assert "nonResourceURLs" not in rule


def test_no_cluster_role_speaks_of_secrets(rendered: list[Manifest]) -> None:
    for name, rule in rules(rendered, "ClusterRole"):
        assert "secrets" not in rule["resources"], name


def test_no_role_may_escalate(rendered: list[Manifest]) -> None:
    for name, rule in rules(rendered, "Role", "ClusterRole"):
        assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"]), name
        assert "rbac.authorization.k8s.io" not in rule["apiGroups"], name
        assert not {"pods/exec", "pods/attach", "nodes/proxy"} & set(rule["resources"]), name


@pytest.mark.parametrize("part", ["operator", "gateway"])
def test_secrets_of_the_release_are_read_by_name_only(rendered: list[Manifest], part: str) -> None:
    role = named(rendered, "Role", f"fleetward-{part}")
    readers = [
        rule
        for rule in role["rules"]
        if "secrets" in rule["resources"] and {"get", "list", "watch"} & set(rule["verbs"])
    ]
    assert readers
    assert all(rule.get("resourceNames") for rule in readers)


def test_the_gateway_reads_its_own_secret_only(rendered: list[Manifest]) -> None:
    role = named(rendered, "Role", "fleetward-gateway")
    (secret_rule,) = [rule for rule in role["rules"] if "secrets" in rule["resources"]]
    assert secret_rule["resourceNames"] == ["fleetward-gateway-keys"]


def test_the_gateway_writes_nothing(rendered: list[Manifest]) -> None:
    for kind in ("Role", "ClusterRole"):
        role = named(rendered, kind, "fleetward-gateway")
        for rule in role["rules"]:
            assert not WRITES & set(rule["verbs"])


def test_api_keys_are_read_in_their_own_namespace(rendered: list[Manifest]) -> None:
    role = named(rendered, "Role", "fleetward-api-keys")
    assert role["metadata"]["namespace"] == "fleetward-keys"
    assert [rule["verbs"] for rule in role["rules"]] == [["get", "list", "watch"]]


def test_the_operator_may_write_what_it_writes_and_no_more(rendered: list[Manifest]) -> None:
    applied = {"create", "patch", "delete"}
    assert writes_of(named(rendered, "ClusterRole", "fleetward-operator")) == {
        "inferenceservices/status": {"patch"},
        "cachepolicies/status": {"patch"},
        "tenants": {"patch"},
        "cachepurges": {"create"},
        "tenants/status": {"patch"},
        "cachepurges/status": {"patch"},
        "inferenceservices/finalizers": {"update"},
        "deployments": applied,
        "services": applied,
        "serviceaccounts": applied,
        "configmaps": applied,
        "networkpolicies": applied,
        "poddisruptionbudgets": applied,
        "pods": {"patch"},
        "events": {"create"},
        "tokenreviews": {"create"},
    }
    assert writes_of(named(rendered, "Role", "fleetward-operator")) == {
        "secrets": {"create", "update"},
        "configmaps": {"update"},
        "leases": {"create", "update"},
    }


def writes_of(role: Manifest) -> dict[str, set[str]]:
    """What a role lets its holder write: verbs by resource."""
    found: dict[str, set[str]] = {}
    for rule in role["rules"]:
        for resource in rule["resources"]:
            verbs = WRITES & set(rule["verbs"])
            if verbs:
                found.setdefault(resource, set()).update(verbs)
    return found


def test_every_binding_names_an_account_of_ours(rendered: list[Manifest]) -> None:
    accounts = {
        (account["metadata"]["namespace"], account["metadata"]["name"])
        for account in of_kind(rendered, "ServiceAccount")
    }
    for binding in of_kind(rendered, "RoleBinding", "ClusterRoleBinding"):
        for subject in binding["subjects"]:
            assert subject["kind"] == "ServiceAccount"
            assert (subject["namespace"], subject["name"]) in accounts
