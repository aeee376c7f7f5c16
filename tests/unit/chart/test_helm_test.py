"""What `helm test` runs: one pod that may read little, only while it runs."""

from __future__ import annotations

from fleetward_cli.installation import LEASE, PARTS, definition_names
from tests.support.chart import Manifest, named, of_kind

HOOKS = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")


def test_its_access_goes_with_it(rendered: list[Manifest]) -> None:
    pod = named(rendered, "Pod", "fleetward-check")
    for kind in HOOKS:
        annotations = named(rendered, kind, "fleetward-test")["metadata"]["annotations"]
        assert annotations["helm.sh/hook"] == "test"
        assert "hook-succeeded" in annotations["helm.sh/hook-delete-policy"]
        assert int(annotations["helm.sh/hook-weight"]) < 0
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert pod["spec"]["serviceAccountName"] == "fleetward-test"


def test_it_may_get_what_it_checks_and_no_more(rendered: list[Manifest]) -> None:
    wide = named(rendered, "ClusterRole", "fleetward-test")["rules"]
    narrow = named(rendered, "Role", "fleetward-test")["rules"]
    granted = {
        (resource, name)
        for rule in [*wide, *narrow]
        for resource in rule["resources"]
        for name in rule["resourceNames"]
    }
    assert granted == {
        *(("customresourcedefinitions", name) for name in definition_names()),
        *(("deployments", f"fleetward-{part}") for part in PARTS),
        ("leases", LEASE),
    }
    assert all(rule["verbs"] == ["get"] for rule in [*wide, *narrow])


def test_it_waits_less_than_its_deadline_and_its_words_are_kept(rendered: list[Manifest]) -> None:
    spec = named(rendered, "Pod", "fleetward-check")["spec"]
    (container,) = spec["containers"]
    command = container["command"]
    assert command[:2] == ["fleetward", "check"]
    assert float(command[command.index("--wait") + 1]) < spec["activeDeadlineSeconds"] - 30
    assert spec["restartPolicy"] == "Never"
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_nothing_else_of_the_chart_is_a_test(rendered: list[Manifest]) -> None:
    hooks = [
        each["metadata"]["name"]
        for each in rendered
        if "helm.sh/hook" in (each["metadata"].get("annotations") or {})
    ]
    assert sorted(hooks) == sorted(["fleetward-check", *["fleetward-test"] * len(HOOKS)])
    assert len(of_kind(rendered, "Pod")) == 1
