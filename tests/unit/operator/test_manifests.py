"""Manifests against goldens, and what must hold for every one of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleetward_operator.core.desired import desired_service, engine_args
from fleetward_operator.manifests.children import build_children
from fleetward_operator.manifests.manifest import desired_hash, stamp, stamped_hash
from fleetward_operator.manifests.pod import build_pod_template
from fleetward_operator.manifests.trust import build_release_trust
from tests.support.operator_facts import CONFIG, IMAGE, service
from tests.unit.operator.conftest import Golden

SERVICES: dict[str, dict[str, Any]] = {
    "plain": {},
    "simulated-idle": {"engine": {"runner": "Simulated"}, "scaling": {"minReplicas": 0}},
    "accelerator": {
        "model": {
            "name": "big",
            "aliases": ["bigger"],
            "source": "pvc://weights/models/big.gguf",
            "digest": "sha256:" + "a" * 64,
        },
        "engine": {
            "dtype": "BFloat16",
            "maxModelLen": 8192,
            "chunkedPrefill": True,
            "prefixCaching": False,
            "kvMemory": "4Gi",
        },
        "resources": {
            "accelerator": {"resource": "nvidia.com/gpu", "count": 1},
            "cpu": "8",
            "memory": "64Gi",
            "nodeSelector": {"pool": "gpu"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "priorityClassName": "serving",
        },
        "rollout": {"maxSurge": 0, "maxUnavailable": "25%"},
        "scaling": {"mode": "External"},
        "replicas": 3,
    },
}


def children(name: str) -> list[dict[str, Any]]:
    desired = desired_service(
        service(**SERVICES[name]), image=IMAGE, environment=CONFIG.environment, keys=CONFIG.keys
    )
    return list(build_children(desired, bundle_json='{"generation":1}'))


@pytest.mark.parametrize("name", SERVICES)
def test_children_are_those_of_the_golden_file(name: str, golden: Golden) -> None:
    golden(name, children(name))


def test_the_release_trust_is_that_of_the_golden_file(golden: Golden) -> None:
    golden("trust", [build_release_trust(CONFIG.keys, namespace="fleetward-system")])


@pytest.mark.parametrize("name", SERVICES)
def test_pods_meet_the_restricted_pod_security_standard(name: str) -> None:
    pod = template(name)["spec"]
    container = pod["containers"][0]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert pod["automountServiceAccountToken"] is False
    allowed = {"configMap", "projected", "emptyDir", "persistentVolumeClaim"}
    assert all(set(volume) - {"name"} <= allowed for volume in pod["volumes"])


def test_nothing_in_a_pod_names_a_version_of_ours_or_a_policy() -> None:
    text = repr(template("plain"))
    assert "app.kubernetes.io/version" not in text
    assert "desired-hash" not in text
    assert "bundle" not in text


def test_without_a_bundle_its_configmap_is_left_alone() -> None:
    desired = desired_service(
        service(), image=IMAGE, environment=CONFIG.environment, keys=CONFIG.keys
    )
    names = [one["metadata"]["name"] for one in build_children(desired, bundle_json=None)]
    assert "demo-bundle" not in names
    assert names[-1] == "demo"


def test_the_walls_stand_before_the_engine() -> None:
    kinds = [one["kind"] for one in children("plain")]
    assert kinds.index("NetworkPolicy") < kinds.index("Deployment")


def test_only_the_gateway_reaches_the_api_and_only_the_operator_the_admin_port() -> None:
    spec = next(one for one in children("plain") if one["kind"] == "NetworkPolicy")["spec"]
    reached = {rule["ports"][0]["port"]: rule["from"] for rule in spec["ingress"]}

    def components(port: int) -> list[str]:
        pods = [peer["podSelector"]["matchLabels"] for peer in reached[port] if len(peer) == 2]
        return [labels["app.kubernetes.io/component"] for labels in pods]

    assert (components(8000), components(8001), components(9090)) == (
        ["gateway"],
        ["operator"],
        ["operator"],
    )
    assert len(reached[9090]) == 2
    assert "egress" not in spec
    assert spec["policyTypes"] == ["Ingress", "Egress"]


@pytest.mark.parametrize(("name", "runtime_class"), [("plain", None), ("accelerator", "nvidia")])
def test_the_release_gives_pods_their_pull_secrets_and_accelerators_their_runtime(
    name: str, runtime_class: str | None
) -> None:
    environment = replace(
        CONFIG.environment, pull_secrets=("reg",), accelerator_runtime_class="nvidia"
    )
    desired = desired_service(
        service(**SERVICES[name]), image=IMAGE, environment=environment, keys=CONFIG.keys
    )
    pod = build_pod_template(desired)["spec"]
    assert pod["imagePullSecrets"] == [{"name": "reg"}]
    assert pod.get("runtimeClassName") == runtime_class
    assert not {"imagePullSecrets", "runtimeClassName"} & template(name)["spec"].keys()


def test_a_claim_becomes_a_read_only_mount_and_a_path() -> None:
    args = engine_args(service(**SERVICES["accelerator"]).spec)
    assert args[:2] == ("--model", "file:///models/models/big.gguf")
    pod = template("accelerator")["spec"]
    mount = pod["containers"][0]["volumeMounts"][-1]
    assert mount == {"name": "models", "mountPath": "/models", "readOnly": True}


def test_numbers_of_the_kv_cache_become_a_flag_only_where_they_are_not_the_model_s() -> None:
    assert "--kv-cache-dtype" not in engine_args(service(**SERVICES["plain"]).spec)
    args = engine_args(service(engine={"quantization": {"kvCache": "Int8"}}).spec)
    assert args[args.index("--kv-cache-dtype") + 1] == "int8"


def test_host_memory_becomes_a_flag_only_where_it_is_given() -> None:
    # A flag for the default would restart every engine when the operator is upgraded.
    flag = "--host-kv-cache-memory-bytes"
    assert flag not in engine_args(service(**SERVICES["plain"]).spec)
    args = engine_args(service(engine={"hostKvMemory": "1Gi"}).spec)
    assert args[args.index(flag) + 1] == str(1 << 30)


def test_fingerprints_become_a_flag_only_where_they_are_asked_for() -> None:
    # A flag for the default would restart every engine when the operator is upgraded.
    assert "--verify-kv" not in engine_args(service(**SERVICES["plain"]).spec)
    assert "--verify-kv" in engine_args(service(engine={"verifyKv": True}).spec)


def test_batches_that_change_nothing_are_asked_for_by_a_flag_of_their_own() -> None:
    assert "--batch-invariant" not in engine_args(service(**SERVICES["plain"]).spec)
    assert "--batch-invariant" in engine_args(service(engine={"batchInvariant": True}).spec)


def test_a_hash_is_of_the_content_and_not_of_itself() -> None:
    manifest = children("plain")[0]
    assert stamped_hash(stamp(strip(manifest))) == stamped_hash(manifest)
    assert desired_hash({"a": 1, "b": 2}) == desired_hash({"b": 2, "a": 1})
    assert desired_hash({"a": 1}) != desired_hash({"a": 2})
    assert stamped_hash({"metadata": {}}) == ""


def strip(manifest: dict[str, Any]) -> dict[str, Any]:
    metadata = {k: v for k, v in manifest["metadata"].items() if k != "annotations"}
    return {**manifest, "metadata": metadata}


def template(name: str) -> dict[str, Any]:
    found = next(one for one in children(name) if one["kind"] == "Deployment")
    return dict(found["spec"]["template"])
