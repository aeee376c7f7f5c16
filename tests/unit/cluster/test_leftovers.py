"""What counts as the cluster's own: processes, mounts, links, routes, namespaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.cluster.leftovers import ProcessFacts, is_ours, mounts_within, unescape
from e2e.cluster.network import is_pod_namespace, own_links, routes_within
from e2e.cluster.paths import Paths

PATHS = Paths(
    checkout=Path("/home/me/code"),
    state=Path("/home/me/code/.local/cluster"),
    cache=Path("/home/me/.cache/fleetward"),
    run=Path("/run/fleetward-cluster"),
)
KUBE = "/home/me/.cache/fleetward/kube/0123/kube"
HOST = "4:memory:/user.slice\n0::/user.slice\n"


def facts(executable: str, *argv: str, cgroups: str = HOST) -> ProcessFacts:
    return ProcessFacts(pid=7, executable=executable, argv=argv, cgroups=cgroups)


@pytest.mark.parametrize(
    ("process", "ours"),
    [
        (facts(KUBE, KUBE, "etcd", "--data-dir=/home/me/code/.local/cluster/etcd"), True),
        (facts(KUBE, KUBE, "etcd", "--data-dir=/tmp/pytest-1/api/etcd"), False),
        (facts(KUBE, KUBE, "kubectl", "--kubeconfig=/home/me/code/.local/cluster/x"), False),
        (facts("/usr/bin/containerd", "containerd", "--config", "/etc/containerd.toml"), False),
        (
            facts(
                "/usr/bin/containerd-shim-runc-v2",
                "containerd-shim-runc-v2",
                "-address",
                "/run/fleetward-cluster/containerd.sock",
            ),
            True,
        ),
        (facts("/usr/bin/vim", "vim", "/home/me/code/.local/cluster/audit.log"), False),
        (facts("/bin/sleep", "sleep", "9", cgroups="4:memory:/kubepods/podx/y\n"), True),
        (facts("/bin/sleep", "sleep", "9", cgroups="4:memory:/docker/kubepods-not\n"), False),
    ],
)
def test_whose_process(process: ProcessFacts, ours: bool) -> None:
    assert is_ours(process, PATHS) is ours


def test_mounts_are_innermost_first_and_only_ours() -> None:
    mountinfo = (
        "1 0 8:1 / / rw - ext4 /dev/vda rw\n"
        "2 1 0:2 / /run/fleetward-cluster/a rw - tmpfs tmpfs rw\n"
        "3 1 0:3 / /run/fleetward-cluster/a/b\\040c/d rw - overlay overlay rw\n"
        "4 1 0:4 / /run/fleetward-cluster-of-another/a rw - tmpfs tmpfs rw\n"
    )
    assert mounts_within(mountinfo, ["/run/fleetward-cluster"]) == [
        "/run/fleetward-cluster/a/b c/d",
        "/run/fleetward-cluster/a",
    ]


def test_octal_escapes() -> None:
    assert unescape(r"a\040b\134c") == r"a b\c"


def test_links_are_ours_by_name_or_by_bridge_and_ports_go_first() -> None:
    links: list[dict[str, object]] = [
        {"ifname": "eth0"},
        {"ifname": "kube-pods"},
        {"ifname": "veth1", "master": "kube-pods"},
        {"ifname": "veth2", "master": "docker0"},
        {"ifname": "kube-svc"},
    ]
    assert own_links(links) == ["veth1", "kube-pods", "kube-svc"]


def test_routes_into_the_range_and_around_it() -> None:
    routes = ["default", "192.0.2.0/24", "198.18.0.0/24", "198.19.0.1", "198.20.0.0/16"]
    assert routes_within(routes) == ["198.18.0.0/24", "198.19.0.1"]
    assert routes_within(["198.0.0.0/8"]) == ["198.0.0.0/8"]


@pytest.mark.parametrize(
    ("addresses", "ours"),
    [
        (["198.18.0.9"], True),
        ([], True),
        (["172.17.0.2"], False),
        (["198.18.0.9", "10.0.0.1"], False),
    ],
)
def test_whose_network_namespace(addresses: list[str], ours: bool) -> None:
    assert is_pod_namespace(addresses) is ours
