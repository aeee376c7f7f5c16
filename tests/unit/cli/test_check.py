"""`fleetward check`: each thing that can be wrong with an installation is said in words."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetward_cli.check import service_url
from fleetward_cli.errors import CliError
from fleetward_cli.installation import beyond_restricted, definition_names
from tests.support.http_answers import HttpAnswers, Reply, json_reply
from tests.unit.cli.conftest import Run

RELEASE = "/apis/apps/v1/namespaces/fleetward-system/deployments"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/fleetward-system/leases/fleetward-operator"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POD: dict[str, Any] = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "it",
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
        }
    ],
    "volumes": [{"name": "tmp", "emptyDir": {}}],
}
DEFINITION: dict[str, Any] = {
    "spec": {"versions": [{"name": "v1alpha1", "served": True}]},
    "status": {"conditions": [{"type": "Established", "status": "True"}]},
}
DEPLOYMENT: dict[str, Any] = {
    "metadata": {"generation": 2},
    "spec": {"replicas": 2, "template": {"spec": POD}},
    "status": {"observedGeneration": 2, "updatedReplicas": 2, "availableReplicas": 2},
}
REFUSED = {"error": {"message": "no", "type": "t", "param": None, "code": "invalid_api_key"}}

Change = Callable[[HttpAnswers], None]


@pytest.fixture
def installed(cluster: HttpAnswers) -> HttpAnswers:
    """A release that works; its gateway answers at the same address as the API server."""
    cluster.replies |= {
        **{f"{DEFINITIONS}/{name}": json_reply(DEFINITION) for name in definition_names()},
        **{
            f"{RELEASE}/fleetward-{part}": json_reply(DEPLOYMENT)
            for part in ("operator", "gateway")
        },
        LEASE: json_reply({"spec": {"holderIdentity": "operator-0_uid"}}),
        "/readyz": json_reply({"status": "ok", "missing": []}),
        "/v1/models": json_reply(REFUSED, 401),
    }
    return cluster


def changed(item: dict[str, Any], path: str, value: object) -> Reply:
    """The object with one field, named by a dotted path, set to something else."""
    other = copy.deepcopy(item)
    *parents, last = path.split(".")
    inner: Any = other
    for name in parents:
        inner = inner[int(name)] if name.isdecimal() else inner[name]
    inner[last] = value
    return json_reply(other)


def test_all_is_well(run: Run, installed: HttpAnswers, kubeconfig: Path) -> None:
    ended = run("check", "--url", installed.url, "--kubeconfig", str(kubeconfig))
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert len(lines) == len(definition_names()) + 8
    assert all(line.startswith("ok ") for line in lines)


def test_no_secret_is_read_and_no_key_is_shown(
    run: Run, installed: HttpAnswers, kubeconfig: Path
) -> None:
    ended = run("check", "--url", installed.url, "--kubeconfig", str(kubeconfig))
    assert not any("secrets" in path for path in installed.replies)
    assert "fw-no-such-key" not in ended.out + ended.err
    sent = [each["Authorization"] for each in installed.headers if "Authorization" in each]
    assert sent == ["Bearer fw-no-such-key"]


TENANTS = f"{DEFINITIONS}/tenants.fleetward.io"
GATEWAY = f"{RELEASE}/fleetward-gateway"
GONE = json_reply({"kind": "Status", "code": 404, "reason": "NotFound", "message": "gone"}, 404)
FORBIDDEN = json_reply({"kind": "Status", "code": 403, "message": "may not get it"}, 403)


@pytest.mark.parametrize(
    ("path", "reply", "words"),
    [
        (TENANTS, GONE, "tenants.fleetward.io: is not installed"),
        (TENANTS, FORBIDDEN, "may not get it"),
        (
            TENANTS,
            changed(DEFINITION, "spec.versions", [{"name": "v1", "served": True}]),
            "serves v1, not v1alpha1",
        ),
        (TENANTS, changed(DEFINITION, "status", {}), "is not established: no word yet"),
        (GATEWAY, GONE, "gateway: every replica is ready: its Deployment is not there"),
        (GATEWAY, changed(DEPLOYMENT, "metadata.generation", 3), "was not taken up yet"),
        (
            GATEWAY,
            changed(
                DEPLOYMENT,
                "status",
                {
                    "observedGeneration": 2,
                    "updatedReplicas": 2,
                    "availableReplicas": 1,
                    "conditions": [
                        {"type": "Available", "status": "False", "message": "no minimum"}
                    ],
                },
            ),
            "availableReplicas 1 of 2; no minimum",
        ),
        (GATEWAY, changed(DEPLOYMENT, "spec.template.spec.hostNetwork", True), "hostNetwork"),
        (LEASE, GONE, "no operator has ever led here"),
        (LEASE, json_reply({"spec": {"holderIdentity": ""}}), "nobody holds the lease"),
        ("/readyz", json_reply({"missing": ["floors"]}, 503), "answered 503, not 200; it waits"),
        ("/v1/models", json_reply({"data": []}), "without a key: was answered 200, not 401"),
        ("/v1/models", Reply(401, b"no"), "but not in OpenAI's shape"),
    ],
)
def test_what_is_wrong_is_said(
    run: Run, installed: HttpAnswers, kubeconfig: Path, path: str, reply: Reply, words: str
) -> None:
    assert path in installed.replies
    installed.replies[path] = reply
    ended = run("check", "--url", installed.url, "--kubeconfig", str(kubeconfig))
    assert ended.code == 1
    wrong = [line for line in ended.out.splitlines() if line.startswith("WRONG")]
    assert any(words in line for line in wrong), ended.out
    assert f"error: {len(wrong)} of" in ended.err


def test_a_gateway_that_does_not_answer(run: Run, installed: HttpAnswers, kubeconfig: Path) -> None:
    ended = run("check", "--url", "http://127.0.0.1:1", "--kubeconfig", str(kubeconfig))
    assert ended.code == 1
    assert "gateway at http://127.0.0.1:1: does not answer" in ended.out


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        ("hostPID", True, "hostPID"),
        ("volumes", [{"name": "x", "hostPath": {"path": "/"}}], "volume hostPath"),
        ("containers.0.securityContext.privileged", True, "it: privileged"),
        (
            "containers.0.securityContext.allowPrivilegeEscalation",
            None,
            "it: may escalate its privileges",
        ),
        ("containers.0.securityContext.runAsUser", 0, "it: may run as root"),
        (
            "containers.0.securityContext.capabilities",
            {"drop": ["CHOWN"]},
            "it: keeps capabilities",
        ),
        ("securityContext.seccompProfile", {"type": "Unconfined"}, "it: has no seccomp profile"),
    ],
)
def test_what_the_restricted_level_forbids(path: str, value: object, fault: str) -> None:
    assert beyond_restricted(POD) == []
    assert beyond_restricted(json.loads(changed(POD, path, value).body)) == [fault]


@pytest.mark.parametrize(
    ("host", "url"), [("198.18.0.1", "http://198.18.0.1:80"), ("fd00::1", "http://[fd00::1]:80")]
)
def test_the_service_is_found_by_the_pods_own_variables(host: str, url: str) -> None:
    names = {"FLEETWARD_GATEWAY_SERVICE_HOST": host, "FLEETWARD_GATEWAY_SERVICE_PORT": "80"}
    assert service_url(names) == url


def test_without_an_address_it_asks_for_one() -> None:
    with pytest.raises(CliError, match="--url"):
        service_url({})
