"""Every pod of the chart meets the restricted Pod Security level, and needs no name service."""

from __future__ import annotations

import pytest

from tests.support.chart import Chart, Manifest, named, of_kind, pod_specs


def test_every_pod_is_restricted(rendered: list[Manifest]) -> None:
    found = list(pod_specs(rendered))
    assert {name for name, _ in found} >= {"fleetward-operator", "fleetward-gateway"}
    for name, spec in found:
        context = spec["securityContext"]
        assert context["runAsNonRoot"] is True, name
        assert context["runAsUser"] == 65532, name
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys(), name
        assert all("hostPath" not in volume for volume in spec.get("volumes", ())), name
        for container in spec["containers"]:
            inner = container["securityContext"]
            assert inner["allowPrivilegeEscalation"] is False, name
            assert inner["readOnlyRootFilesystem"] is True, name
            assert inner["capabilities"] == {"drop": ["ALL"]}, name
            assert "privileged" not in inner, name


def test_every_container_bounds_its_memory(rendered: list[Manifest]) -> None:
    for name, spec in pod_specs(rendered):
        for container in spec["containers"]:
            assert container["resources"]["limits"]["memory"], name


def test_no_pod_needs_the_name_service(rendered: list[Manifest]) -> None:
    for name, spec in pod_specs(rendered):
        assert spec["dnsPolicy"] == "Default", name


def test_no_secret_is_templated_or_put_into_an_environment(rendered: list[Manifest]) -> None:
    assert of_kind(rendered, "Secret") == []
    for name, spec in pod_specs(rendered):
        for container in spec["containers"]:
            for variable in container.get("env", ()):
                assert "secretKeyRef" not in variable.get("valueFrom", {}), name


def test_the_gateway_proves_itself_with_a_token_for_the_operator(
    rendered: list[Manifest],
) -> None:
    spec = named(rendered, "Deployment", "fleetward-gateway")["spec"]["template"]["spec"]
    (volume,) = [each for each in spec["volumes"] if each["name"] == "token"]
    (source,) = volume["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == "fleetward-operator"
    mounts = {each["name"]: each["mountPath"] for each in spec["containers"][0]["volumeMounts"]}
    assert mounts["token"] == "/var/run/secrets/fleetward"


def test_a_pod_outlives_its_own_drain(chart: Chart) -> None:
    rendered = chart.render({"gateway": {"drainSeconds": 300}})
    spec = named(rendered, "Deployment", "fleetward-gateway")["spec"]["template"]["spec"]
    environment = {each["name"]: each.get("value") for each in spec["containers"][0]["env"]}
    delay = float(environment["FLEETWARD_GATEWAY_DRAIN_DELAY_SECONDS"])
    assert environment["FLEETWARD_GATEWAY_DRAIN_GRACE_SECONDS"] == "300"
    assert spec["terminationGracePeriodSeconds"] > delay + 300


def test_a_new_pod_is_there_before_an_old_one_goes(rendered: list[Manifest]) -> None:
    deployments = of_kind(rendered, "Deployment")
    assert len(deployments) == 2
    for deployment in deployments:
        rolling = deployment["spec"]["strategy"]["rollingUpdate"]
        assert rolling == {"maxSurge": 1, "maxUnavailable": 0}, deployment["metadata"]["name"]


def test_pod_labels_name_no_version(rendered: list[Manifest]) -> None:
    for deployment in of_kind(rendered, "Deployment"):
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert "app.kubernetes.io/version" not in labels
        assert "helm.sh/chart" not in labels
        assert labels["app.kubernetes.io/part-of"] == "fleetward"
        selector = deployment["spec"]["selector"]["matchLabels"]
        assert selector.items() <= labels.items()


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ({"tag": "abc"}, "fleetward/operator:abc"),
        ({"tag": ""}, "fleetward/operator:0.1.0"),
        ({"tag": "abc", "digest": "sha256:" + "0" * 64}, "fleetward/operator@sha256:" + "0" * 64),
        ({"repository": "reg.example:5000/a/b", "tag": "1"}, "reg.example:5000/a/b:1"),
    ],
)
def test_a_digest_wins_over_a_tag(chart: Chart, image: dict[str, str], expected: str) -> None:
    for name, spec in pod_specs(chart.render({"image": image})):
        assert [container["image"] for container in spec["containers"]] == [expected], name
