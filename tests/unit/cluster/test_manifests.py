"""Documents and command lines that the cluster's programs are given."""

from __future__ import annotations

import base64
import json
import tarfile
import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

from e2e.cluster.addons import build_firewall_access, build_proxy_config
from e2e.cluster.certificates import control_plane_identities, ensure_certificates
from e2e.cluster.containerd import build_config as build_containerd_config
from e2e.cluster.containerd import build_network
from e2e.cluster.controlplane import ControlPlane, api_server, controller_manager, scheduler
from e2e.cluster.images import SandboxImage, build_archive, build_layer
from e2e.cluster.kubeconfig import write_user_kubeconfig
from e2e.cluster.kubelet import is_ready
from e2e.cluster.paths import Paths


def plane(folder: Path, *, advertise: str | None = "198.18.255.1") -> ControlPlane:
    return ControlPlane(
        kube=Path("/kube"),
        folder=folder,
        bind="127.0.0.1",
        advertise=advertise,
        service_range="198.19.0.0/24",
        api_port=1,
        etcd_port=2,
        etcd_peer_port=3,
    )


def test_api_server_is_guarded_and_audited(tmp_path: Path) -> None:
    argv = api_server(plane(tmp_path)).argv
    assert argv[:2] == ("/kube", "kube-apiserver")
    assert "--authorization-mode=Node,RBAC" in argv
    assert "--enable-admission-plugins=NodeRestriction" in argv
    assert f"--audit-log-path={tmp_path}/audit.log" in argv
    assert "--kubelet-preferred-address-types=InternalIP" in argv
    policy = next(word for word in argv if word.startswith("--audit-policy-file="))
    assert "level: Metadata" in Path(policy.split("=", 1)[1]).read_text()


def test_an_api_server_alone_publishes_no_address(tmp_path: Path) -> None:
    argv = api_server(plane(tmp_path, advertise=None)).argv
    assert "--endpoint-reconciler-type=none" in argv
    assert not any(word.startswith("--advertise-address") for word in argv)


def test_nobody_writes_leases_for_an_election_of_one(tmp_path: Path) -> None:
    for program in (controller_manager(plane(tmp_path)), scheduler(plane(tmp_path))):
        assert "--leader-elect=false" in program.argv


def test_containerd_settings_that_decide_whether_pods_start() -> None:
    paths = Paths(Path("/c"), Path("/c/s"), Path("/cache"), Path("/run/x"))
    config = tomllib.loads(build_containerd_config(paths, sandbox_image="localhost/s:1"))
    cri = config["plugins"]["io.containerd.grpc.v1.cri"]
    assert config["root"] == "/cache/containerd"
    assert config["grpc"]["address"] == "/run/x/containerd.sock"
    assert cri["restrict_oom_score_adj"] is True
    assert cri["sandbox_image"] == "localhost/s:1"
    assert cri["containerd"]["runtimes"]["runc"]["options"]["SystemdCgroup"] is False
    network = json.loads(json.dumps(build_network(paths)))
    assert network["plugins"][0]["bridge"] == "kube-pods"


def test_node_ports_answer_on_this_machine_only(tmp_path: Path) -> None:
    config = build_proxy_config(plane(tmp_path))
    assert config["nodePortAddresses"] == ["127.0.0.0/8", "198.18.255.1/32"]


def test_the_firewall_may_only_read() -> None:
    role = json.loads(json.dumps(build_firewall_access()))[0]
    verbs = {verb for rule in role["rules"] for verb in rule["verbs"]}
    resources = {resource for rule in role["rules"] for resource in rule["resources"]}
    assert verbs == {"get", "list", "watch"}
    assert "secrets" not in resources
    assert "*" not in resources


def test_a_node_is_ready_with_its_condition_and_its_address_range() -> None:
    ready = {"type": "Ready", "status": "True"}
    node: dict[str, object] = {"spec": {"podCIDR": "x"}, "status": {"conditions": [ready]}}
    assert is_ready(node)
    assert not is_ready({**node, "spec": {}})
    assert not is_ready({**node, "status": {}})
    assert not is_ready({**node, "status": {"conditions": [{**ready, "status": "Unknown"}]}})
    assert not is_ready({})


def test_the_sandbox_image_depends_on_its_content_alone() -> None:
    layer = build_layer(b"busybox")
    assert layer == build_layer(b"busybox")
    assert layer != build_layer(b"another")
    image = SandboxImage("localhost/s:1", layer)
    archive = build_archive(image, architecture="amd64")
    assert archive == build_archive(image, architecture="amd64")
    assert archive != build_archive(replace(image, reference="localhost/s:2"), architecture="amd64")


def test_the_sandbox_archive_is_a_whole_image_layout() -> None:
    image = SandboxImage("localhost/s:1", build_layer(b"busybox"))
    with tarfile.open(fileobj=BytesIO(build_archive(image, architecture="amd64"))) as tar:
        names = set(tar.getnames())
        index = json.loads(read(tar, "index.json"))
        manifest_name = blob_name(index["manifests"][0]["digest"])
        manifest = json.loads(read(tar, manifest_name))
        blobs = [manifest["config"], *manifest["layers"]]
        assert {blob_name(blob["digest"]) for blob in blobs} <= names
        assert all(len(read(tar, blob_name(blob["digest"]))) == blob["size"] for blob in blobs)
    assert index["manifests"][0]["annotations"] == {"io.containerd.image.name": "localhost/s:1"}


def read(tar: tarfile.TarFile, name: str) -> bytes:
    member = tar.extractfile(name)
    assert member
    return member.read()


def blob_name(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def test_a_users_kubeconfig_is_private_and_carries_everything(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    ensure_certificates(tmp_path, control_plane_identities(), now=now)
    file = write_user_kubeconfig(
        tmp_path / "k", pki=tmp_path, server="https://127.0.0.1:1", user="ann", groups=(), now=now
    )
    document = json.loads(file.read_text())
    cluster = document["clusters"][0]["cluster"]
    assert file.stat().st_mode & 0o777 == 0o600
    assert cluster["server"] == "https://127.0.0.1:1"
    authority = base64.b64decode(cluster["certificate-authority-data"])
    assert authority == (tmp_path / "ca.crt").read_bytes()
