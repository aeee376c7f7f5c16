"""NetworkPolicy on real pods: the gateway and the operator reach engines, a stranger does not."""

from __future__ import annotations

from e2e.tests.support import manifests
from e2e.tests.support.evidence import RELEASE
from e2e.tests.support.kubectl import Cluster, eventually
from e2e.tests.support.services import pods_of, ready

_PORTS = ("8000", "8001", "9090")
_CONNECT = """
import socket, sys
for port in sys.argv[2:]:
    try:
        socket.create_connection((sys.argv[1], int(port)), timeout=5).close()
        print("connected")
    except OSError:
        print("refused")
"""


def test_a_stranger_pod_is_refused(cluster: Cluster, playground: str) -> None:
    address = _engine_address(cluster, playground)
    cluster.apply(_stranger(cluster, playground, address))

    def _spoke() -> list[str]:
        return cluster.run("logs", "stranger", "-n", playground).split()

    eventually(lambda: len(_spoke()) == len(_PORTS), what="the stranger tried all", within=60)
    assert _spoke() == ["refused"] * len(_PORTS)
    assert _from(cluster, "gateway", address, 8000) == "connected"
    assert _from(cluster, "operator", address, 8001) == "connected"


def _engine_address(cluster: Cluster, namespace: str) -> str:
    cluster.apply(manifests.service("walled", namespace=namespace))
    ready(cluster, "walled", namespace)
    return str(pods_of(cluster, "walled", namespace)[0]["status"]["podIP"])


def _from(cluster: Cluster, component: str, address: str, port: int) -> str:
    labels = f"app.kubernetes.io/component={component}"
    pod = cluster.find("pods", namespace=RELEASE, labels=labels)[0]["metadata"]["name"]
    return cluster.run(
        "exec", "-n", RELEASE, pod, "--", "python3", "-c", _CONNECT, address, str(port)
    ).strip()


def _stranger(cluster: Cluster, namespace: str, address: str) -> dict[str, object]:
    operator = cluster.find("deployments", namespace=RELEASE)[0]
    image = operator["spec"]["template"]["spec"]["containers"][0]["image"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "stranger", "namespace": namespace},
        "spec": {
            "restartPolicy": "Never",
            "dnsPolicy": "Default",
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "stranger",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python3", "-c", _CONNECT, address, *_PORTS],
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }
