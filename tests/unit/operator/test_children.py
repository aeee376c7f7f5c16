"""When a child is written, and when it is left alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fleetward_operator.core.children import ApplyChild, DeleteChild, plan_children
from fleetward_operator.core.desired import desired_service
from fleetward_operator.core.drift import find_drift, format_path
from fleetward_operator.core.field_manager import field_manager
from fleetward_operator.manifests.children import build_children
from tests.support.operator_facts import CONFIG, IMAGE, service


def wanted() -> tuple[dict[str, Any], ...]:
    desired = desired_service(
        service(), image=IMAGE, environment=CONFIG.environment, keys=CONFIG.keys
    )
    return build_children(desired, bundle_json="{}")


def live() -> dict[tuple[str, str], dict[str, Any]]:
    """The children as an API server returns them: with defaults and a uid."""
    found = {}
    for manifest in copy.deepcopy(wanted()):
        manifest["metadata"]["uid"] = "live"
        manifest["metadata"]["resourceVersion"] = "9"
        found[manifest["kind"], manifest["metadata"]["name"]] = manifest
    return found


def plan(there: dict[tuple[str, str], dict[str, Any]]) -> tuple[Any, ...]:
    return plan_children(wanted(), there, owner_uid="uid-demo")


def test_children_that_are_as_wanted_are_left_alone() -> None:
    assert plan(live()) == ()


def test_what_others_add_is_left_alone() -> None:
    there = live()
    deployment = there["Deployment", "demo"]
    deployment["metadata"]["labels"]["team"] = "blue"
    deployment["metadata"]["annotations"]["note"] = "x"
    pod = deployment["spec"]["template"]["spec"]
    pod["containers"].append({"name": "sidecar", "image": "mesh.test/proxy:1"})
    pod["containers"][0]["env"].append({"name": "EXTRA", "value": "1"})
    pod["schedulerName"] = "default-scheduler"
    assert plan(there) == ()


def test_an_amount_written_another_way_is_the_same_amount() -> None:
    there = live()
    container = there["Deployment", "demo"]["spec"]["template"]["spec"]["containers"][0]
    container["resources"]["limits"] = {"cpu": "1000m", "memory": "2048Mi"}
    assert plan(there) == ()


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda spec: spec.update(replicas=7), "spec.replicas"),
        (
            lambda spec: spec["template"]["spec"]["containers"][0].update(image="x"),
            "spec.template.spec.containers[engine].image",
        ),
        (
            lambda spec: spec["template"]["spec"]["containers"][0]["args"].append("--x"),
            "spec.template.spec.containers[engine].args",
        ),
        (
            lambda spec: spec["template"]["spec"].update(automountServiceAccountToken=True),
            "spec.template.spec.automountServiceAccountToken",
        ),
        (
            lambda spec: spec["template"]["spec"].pop("automountServiceAccountToken"),
            "spec.template.spec.automountServiceAccountToken",
        ),
        (
            lambda spec: spec["template"]["spec"]["containers"][0]["env"].pop(0),
            "spec.template.spec.containers[engine].env[POD_NAME]",
        ),
    ],
)
def test_a_changed_field_of_ours_is_drift(change: Any, path: str) -> None:
    there = live()
    change(there["Deployment", "demo"]["spec"])
    (action,) = plan(there)
    assert isinstance(action, ApplyChild)
    assert (action.why, format_path(action.drift)) == ("Drifted", path)


def test_an_opened_wall_is_drift() -> None:
    there = live()
    there["NetworkPolicy", "demo"]["spec"]["ingress"].append({})
    (action,) = plan(there)
    assert format_path(action.drift) == "spec.ingress"


def test_a_new_wish_is_a_change_and_not_drift() -> None:
    there = live()
    there["Deployment", "demo"]["metadata"]["annotations"] = {"fleetward.io/desired-hash": "old"}
    (action,) = plan(there)
    assert isinstance(action, ApplyChild)
    assert action.why == "Changed"


def test_a_child_of_an_earlier_service_of_the_name_is_removed_first() -> None:
    there = live()
    there["Service", "demo"]["metadata"]["ownerReferences"][0]["uid"] = "uid-earlier"
    (action,) = plan(there)
    assert isinstance(action, DeleteChild)
    assert (action.kind, action.seen) == ("Service", there["Service", "demo"])


def test_what_was_never_of_a_service_of_the_name_is_neither_removed_nor_written_over() -> None:
    def foreign(change: Any) -> tuple[Any, ...]:
        there = live()
        item = there["ConfigMap", "demo-trust"]
        item["data"] = {"operator.pub": "another"}
        change(item["metadata"])
        return plan(there)

    def no_owner(metadata: dict[str, Any]) -> None:
        # The release's own public keys are such an object.
        del metadata["ownerReferences"], metadata["labels"]["fleetward.io/service"]

    def another_kind(metadata: dict[str, Any]) -> None:
        metadata["ownerReferences"][0] |= {"kind": "Deployment", "uid": "d"}

    def another_name(metadata: dict[str, Any]) -> None:
        metadata["ownerReferences"][0] |= {"name": "another", "uid": "d"}

    for change in (no_owner, another_kind, another_name):
        (action,) = foreign(change)
        assert isinstance(action, ApplyChild), change
        # As for any name that is not in our store: the executor looks whose it is.
        assert action.why == "Missing"


def test_a_child_whose_owner_was_taken_off_gets_it_back() -> None:
    there = live()
    del there["Service", "demo"]["metadata"]["ownerReferences"]
    (action,) = plan(there)
    assert isinstance(action, ApplyChild)
    assert action.why == "Drifted"


def test_a_child_on_its_way_out_is_awaited() -> None:
    there = live()
    there["Service", "demo"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert plan(there) == ()


def test_the_manager_that_last_took_a_field_is_named() -> None:
    def entry(manager: str, time: str, fields: dict[str, Any]) -> dict[str, Any]:
        return {"manager": manager, "time": time, "fieldsV1": fields}

    container: dict[str, Any] = {
        "f:spec": {"f:containers": {'k:{"name":"engine"}': {"f:image": {}}}}
    }
    fields = {"f:spec": {"f:template": container}}
    item = {
        "metadata": {
            "managedFields": [
                entry("ours", "2026-01-05T00:00:00Z", {"f:metadata": {}}),
                entry("early", "2026-01-01T00:00:00Z", fields),
                entry("late", "2026-01-02T00:00:00Z", fields),
                entry("elsewhere", "2026-01-03T00:00:00Z", {"f:status": {}}),
            ]
        }
    }
    path = ("spec", "template", "spec", "containers", "[engine]", "image")
    assert field_manager(path, item, ours={"ours"}) == "late"
    assert field_manager(("spec", "replicas"), item, ours={"ours"}) == ""


def test_lists_without_keys_are_compared_as_wholes() -> None:
    assert find_drift({"a": [1, 2]}, {"a": [1, 2]}) == ()
    assert find_drift({"a": [1, 2]}, {"a": [2, 1]}) == ("a", "[0]")
    assert find_drift({"a": [1]}, {"a": [1, 2]}) == ("a",)
    assert find_drift({"a": {"b": 1}}, {"a": None}) == ("a",)
    assert find_drift({"a": {}}, {}) == ()
    assert find_drift({"a": False}, {}) == ("a",)
