"""Who is named for a changed field: whoever took it from us, and nobody who did not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_operator.core.children import OUR_MANAGERS, STAMP_PATH, ApplyChild, plan_child
from fleetward_operator.core.drift import Path, find_drift, find_drifts
from fleetward_operator.core.events import MAX_FIELDS, drift_reverted, field_contested
from fleetward_operator.core.field_manager import field_manager, field_managers, owns
from fleetward_operator.edges.store import trim_child
from tests.unit.operator.test_children import live, wanted

OURS = {"ours"}
NAMES = st.sampled_from(["a", "b", "c.d/e", "name"])
STEPS = st.one_of(NAMES, NAMES.map(lambda name: f"[{name}]"))
PATHS = st.lists(STEPS, min_size=1, max_size=4).map(tuple)


def fields_of(paths: list[Path]) -> dict[str, Any]:
    """FieldsV1 of a manager that owns exactly these fields, as an API server writes it."""
    tree: dict[str, Any] = {}
    for path in paths:
        node = tree
        for step in path:
            entry = step.startswith("[")
            key = f"k:{json.dumps({'name': step[1:-1]})}" if entry else f"f:{step}"
            if not node and node is not tree:
                # What has fields inside is not owned as a whole.
                node["."] = {}
            node = node.setdefault(key, {})
    return tree


def item(**managers: list[Path]) -> dict[str, Any]:
    entries = [
        {"manager": name, "time": f"2026-01-0{day}T00:00:00Z", "fieldsV1": fields_of(paths)}
        for day, (name, paths) in enumerate(managers.items(), start=1)
    ]
    return {"metadata": {"managedFields": entries}}


@given(PATHS, st.lists(PATHS, max_size=4))
def test_an_owned_field_is_found_and_named(path: Path, others: list[Path]) -> None:
    assert owns(fields_of([path, *others]), path)
    assert field_manager(path, item(bob=[path, *others]), ours=OURS) == "bob"


@given(PATHS, st.lists(PATHS, min_size=1, max_size=4))
def test_nobody_is_named_for_a_field_that_lies_apart_from_his(
    path: Path, others: list[Path]
) -> None:
    apart = all(other[: len(path)] != path and path[: len(other)] != other for other in others)
    if apart:
        assert field_manager(path, item(bob=others), ours=OURS) == ""


@given(PATHS, st.lists(PATHS, max_size=3))
def test_one_who_holds_it_beside_us_changed_nothing(path: Path, more: list[Path]) -> None:
    assert field_manager(path, item(bob=[path, *more], ours=[path]), ours=OURS) == ""


@given(PATHS)
def test_the_last_of_several_is_named_and_a_status_writer_never(path: Path) -> None:
    found = item(first=[path], second=[path])
    assert field_manager(path, found, ours=OURS) == "second"
    found["metadata"]["managedFields"][1]["subresource"] = "status"
    assert field_manager(path, found, ours=OURS) == "first"


@given(st.recursive(st.none() | st.text(max_size=3), lambda x: st.dictionaries(st.text(), x)))
def test_no_odd_record_is_a_fault(odd: Any) -> None:
    fields = odd if isinstance(odd, dict) else {}
    strange = {
        "metadata": {"managedFields": [{"manager": None, "fieldsV1": {"k:{": {}, **fields}}]}
    }
    try:
        field_manager(("a", "[b]"), strange, ours=OURS)
    except AttributeError:
        pytest.fail("a record that is no FieldsV1 broke the pass")


def test_a_sidecars_manager_is_not_blamed_for_the_engines_image() -> None:
    template = ("spec", "template", "spec", "containers")
    found = item(bob=[(*template, "[engine]", "image")], mesh=[(*template, "[proxy]", "image")])
    assert field_manager((*template, "[engine]", "image"), found, ours=OURS) == "bob"


def test_a_port_is_found_by_whatever_keys_it() -> None:
    fields: dict[str, Any] = {
        "f:spec": {"f:ports": {'k:{"port":8000,"protocol":"TCP"}': {"f:targetPort": {}}}}
    }
    found = {"metadata": {"managedFields": [{"manager": "bob", "fieldsV1": fields}]}}
    assert field_manager(("spec", "ports", "[http]", "targetPort"), found, ours=OURS) == "bob"


def test_several_fields_and_managers_are_one_sentence() -> None:
    paths: list[Path] = [("a",), ("b",), ("c.d/e",)]
    found = item(bob=paths[:1], eve=paths[1:])
    assert field_managers(paths, found, ours=OURS) == "bob and eve"
    told = drift_reverted("Deployment demo", fields=["a", "b"], manager="bob and eve").message
    assert told == "Put back a and b of Deployment demo, which bob and eve had changed."
    removed = drift_reverted("Deployment demo", fields=["a"], manager="").message
    assert removed == "Put back a of Deployment demo, which somebody had removed."
    many = [str(number) for number in range(MAX_FIELDS + 2)]
    assert "0, 1, 2 and 2 more field(s)" in drift_reverted("x", fields=many, manager="b").message
    assert "at most every 20 s" in (
        field_contested("x", fields=["a"], manager="", longest_s=20.0).message
    )


TREES = st.recursive(
    st.integers(0, 2) | st.sampled_from(["x", "y"]),
    lambda inner: st.dictionaries(NAMES, inner, min_size=1, max_size=3),
    max_leaves=8,
).filter(lambda tree: isinstance(tree, dict))


@given(TREES, TREES)
def test_drift_is_found_exactly_where_something_wanted_differs(
    want: dict[str, Any], there: dict[str, Any]
) -> None:
    paths = list(find_drifts(want, there))
    assert find_drift(want, there) == (paths[0] if paths else ())
    assert not list(find_drifts(want, {**there, **want}))
    for path in paths:
        assert _at(want, path) != _at(there, path)
    if not paths:
        assert not list(find_drifts(want, _merged(want, there)))
        assert _merged(there, want) == there


def _at(tree: Any, path: Path) -> Any:
    for step in path:
        tree = tree.get(step) if isinstance(tree, dict) else None
    return tree


def _merged(base: Any, over: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    both = {name: _merged(base[name], over[name]) for name in base.keys() & over.keys()}
    return {**base, **over, **both}


def test_a_roll_back_that_brings_an_older_hash_is_drift_and_named() -> None:
    manifest = next(one for one in wanted() if one["kind"] == "Deployment")
    there = live()["Deployment", "demo"]
    there["metadata"]["annotations"]["fleetward.io/desired-hash"] = "older"
    there["spec"]["replicas"] = 7
    stamp: dict[str, Any] = {
        "f:metadata": {"f:annotations": {f"f:{STAMP_PATH[-1]}": {}, "f:x": {}}}
    }
    rest: dict[str, Any] = {"f:spec": {"f:replicas": {}}}
    there["metadata"]["managedFields"] = [
        {
            "manager": "kubectl-rollout",
            "fieldsV1": {**stamp, **rest},
        },
        {"manager": "fleetward-children", "fieldsV1": {"f:spec": {"f:selector": {}}}},
    ]
    for seen in (there, trim_child(there)):
        action = plan_child(manifest, seen, owner_uid="uid-demo")
        assert isinstance(action, ApplyChild)
        assert action.why == "Drifted"
    assert len(trim_child(there)["metadata"]["managedFields"]) == 1
    paths = list(find_drifts(manifest, there))
    assert {path[-1] for path in paths} == {"fleetward.io/desired-hash", "replicas"}
    assert field_managers(paths, there, ours=OUR_MANAGERS) == "kubectl-rollout"


def test_our_own_older_hash_is_a_change_and_nothing_is_kept_of_it() -> None:
    manifest = next(one for one in wanted() if one["kind"] == "Deployment")
    there = live()["Deployment", "demo"]
    there["metadata"]["annotations"]["fleetward.io/desired-hash"] = "older"
    stamp: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{STAMP_PATH[-1]}": {}}}}
    there["metadata"]["managedFields"] = [
        {"manager": "fleetward-children", "fieldsV1": stamp},
        {"manager": "kubectl-client-side-apply", "fieldsV1": stamp},
    ]
    trimmed = trim_child(there)
    assert "managedFields" not in trimmed["metadata"]
    action = plan_child(manifest, trimmed, owner_uid="uid-demo")
    assert isinstance(action, ApplyChild)
    assert action.why == "Changed"
