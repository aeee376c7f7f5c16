"""The chart on a real API server: every object is accepted, and access is as narrow as it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.apiserver import ApiServer
from fleetward_kube import KubeClient
from tests.support.chart import RELEASE_NAMESPACE, Manifest, find_chart, of_kind, pod_specs
from tests.support.raw_api import RawApi

PLURALS = {
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "Namespace": "/api/v1/namespaces",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "Pod": "/api/v1/namespaces/{}/pods",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "Service": "/api/v1/namespaces/{}/services",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
}
CRDS = "customresourcedefinitions"
ACCESS = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")


@pytest.fixture(scope="module")
def manifests() -> list[Manifest]:
    return find_chart().render({"metrics": {"scraperNamespaces": ["monitoring"]}})


@pytest.fixture
async def installed(crds_installed: Path, manifests: list[Manifest]) -> Path:
    """The chart's namespaces and access rules are there; the administrator's kubeconfig."""
    async with RawApi.connect(crds_installed) as api:
        restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
        home: Manifest = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": RELEASE_NAMESPACE, "labels": restricted},
        }
        for manifest in [home, *of_kind(manifests, "Namespace"), *of_kind(manifests, *ACCESS)]:
            answer = await api.apply(object_path(manifest), manifest)
            assert answer.accepted, answer.message
    return crds_installed


def collection(manifest: Manifest) -> str:
    """Where objects of its kind are created."""
    return PLURALS[manifest["kind"]].format(manifest["metadata"].get("namespace", ""))


def object_path(manifest: Manifest) -> str:
    """Where this object is found."""
    return f"{collection(manifest)}/{manifest['metadata']['name']}"


async def test_every_object_is_accepted(installed: Path, manifests: list[Manifest]) -> None:
    async with RawApi.connect(installed) as api:
        for manifest in manifests:
            path = object_path(manifest)
            answer = await api.send(
                "PATCH",
                path,
                manifest,
                dryRun="All",
                fieldValidation="Strict",
                fieldManager="tests",
                force="true",
            )
            assert answer.accepted, f"{path}: {answer.message}"


async def test_every_pod_may_run_in_a_restricted_namespace(
    installed: Path, manifests: list[Manifest]
) -> None:
    path = PLURALS["Pod"].format(RELEASE_NAMESPACE)
    async with RawApi.connect(installed) as api:
        for name, spec in pod_specs(manifests):
            # The account may have no token controller here; what counts is Pod Security admission.
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name},
                "spec": {**spec, "serviceAccountName": "default"} | {"restartPolicy": "Always"},
            }
            (answer,) = await api.judge(path, [pod])
            assert answer.accepted, f"{name}: {answer.message}"
            wrong: dict[str, Any] = {**pod, "spec": {**pod["spec"], "hostNetwork": True}}  # type: ignore[dict-item]
            (answer,) = await api.judge(path, [wrong])
            assert "violates PodSecurity" in answer.message, name


@pytest.mark.parametrize(
    ("account", "verb", "group", "resource", "namespace", "name", "allowed"),
    [
        ("operator", "list", "", "secrets", "", "", False),
        ("operator", "list", "", "secrets", RELEASE_NAMESPACE, "", False),
        ("operator", "get", "", "secrets", RELEASE_NAMESPACE, "fleetward-cache-epoch", True),
        ("operator", "get", "", "secrets", RELEASE_NAMESPACE, "somebody-elses", False),
        ("operator", "get", "", "secrets", "quickstart", "fleetward-cache-epoch", False),
        ("operator", "list", "", "secrets", "fleetward-keys", "", True),
        ("operator", "patch", "", "secrets", "fleetward-keys", "acme", False),
        ("operator", "patch", "apps", "deployments", "quickstart", "smollm2", True),
        ("operator", "create", "", "pods", "quickstart", "", False),
        ("operator", "delete", "", "pods", "quickstart", "smollm2-1", False),
        ("operator", "delete", "fleetward.io", "inferenceservices", "quickstart", "x", False),
        ("operator", "patch", "fleetward.io", "tenants", "", "a", True),
        ("operator", "delete", "fleetward.io", "tenants", "", "a", False),
        ("operator", "create", "fleetward.io", "cachepurges", "", "", True),
        ("operator", "delete", "fleetward.io", "cachepurges", "", "x", False),
        ("operator", "update", "coordination.k8s.io", "leases", "kube-system", "x", False),
        ("gateway", "watch", "fleetward.io", "tenants", "", "", True),
        ("gateway", "watch", "discovery.k8s.io", "endpointslices", "", "", True),
        ("gateway", "list", "", "secrets", "", "", False),
        ("gateway", "list", "", "secrets", "fleetward-keys", "", True),
        ("gateway", "get", "", "secrets", RELEASE_NAMESPACE, "fleetward-gateway-keys", True),
        ("gateway", "get", "", "secrets", RELEASE_NAMESPACE, "fleetward-operator-keys", False),
        ("gateway", "get", "", "secrets", RELEASE_NAMESPACE, "fleetward-cache-epoch", False),
        ("gateway", "patch", "fleetward.io", "tenants", "", "a", False),
        ("gateway", "create", "authentication.k8s.io", "tokenreviews", "", "", False),
        ("test", "get", "apiextensions.k8s.io", CRDS, "", "tenants.fleetward.io", True),
        ("test", "get", "apps", "deployments", RELEASE_NAMESPACE, "fleetward-gateway", True),
        ("test", "list", "apps", "deployments", RELEASE_NAMESPACE, "", False),
        ("test", "get", "", "secrets", RELEASE_NAMESPACE, "fleetward-operator-keys", False),
        ("test", "list", "", "secrets", "fleetward-keys", "", False),
    ],
)
async def test_access_is_as_narrow_as_it_says(
    installed: Path,
    account: str,
    verb: str,
    group: str,
    resource: str,
    namespace: str,
    name: str,
    allowed: bool,
) -> None:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{RELEASE_NAMESPACE}:fleetward-{account}",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": {
                "verb": verb,
                "group": group,
                "resource": resource,
                "namespace": namespace,
                "name": name,
            },
        },
    }
    async with RawApi.connect(installed) as api:
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = await api.send("POST", path, review)
    assert answer.body["status"]["allowed"] is allowed


async def test_the_gateway_watches_with_what_it_is_granted(
    installed: Path, api_server: ApiServer
) -> None:
    kubeconfig = api_server.kubeconfig_for_service_account(RELEASE_NAMESPACE, "fleetward-gateway")
    environ = {"KUBECONFIG": str(kubeconfig)}
    query = {"fieldSelector": "metadata.name=fleetward-gateway-keys"}
    async with KubeClient.from_environment(environ, patience_s=60) as client:
        for path in (
            "/apis/fleetward.io/v1alpha1/tenants",
            "/apis/fleetward.io/v1alpha1/inferenceservices",
            "/apis/fleetward.io/v1alpha1/cachepolicies",
            "/api/v1/namespaces/fleetward-keys/secrets",
        ):
            assert "items" in await client.request("GET", path)
        named = f"/api/v1/namespaces/{RELEASE_NAMESPACE}/secrets"
        assert "items" in await client.request("GET", named, query=query)
