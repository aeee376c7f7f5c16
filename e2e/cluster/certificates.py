"""The certificates of one control plane, as files in its ``pki`` folder.

Three authorities, since each is trusted for one thing only: ``ca`` (who calls and who serves the
Kubernetes API), ``etcd-ca`` (who reads and writes the store: a user's certificate must never open
it), ``front-proxy-ca`` (who may speak in another user's name through aggregation).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from e2e.cluster.pki import Pair, Subject, issue, new_authority, new_signing_key

CONTROL_PLANE_HOSTS = (
    "127.0.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
MASTERS = "system:masters"
COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class Identities:
    """Every certificate that a control plane needs, by authority and file name."""

    by_authority: dict[str, dict[str, Subject]]


def control_plane_identities(*hosts: str) -> Identities:
    """etcd, API server and their clients; ``hosts`` are more names that the API server has."""
    local = ("127.0.0.1", "localhost")
    return Identities(
        {
            "ca": {
                "apiserver": Subject("kube-apiserver", (), (*CONTROL_PLANE_HOSTS, *hosts)),
                "admin": Subject("fleetward-admin", (MASTERS,)),
                "apiserver-kubelet-client": Subject("kube-apiserver-kubelet-client", (MASTERS,)),
                "controller-manager": Subject("system:kube-controller-manager"),
            },
            "etcd-ca": {
                "etcd": Subject("etcd", (), local),
                "apiserver-etcd-client": Subject("kube-apiserver-etcd-client"),
            },
            "front-proxy-ca": {"front-proxy-client": Subject("front-proxy-client")},
        }
    )


def node_identities(*hosts: str, node_name: str, node_address: str) -> Identities:
    """A control plane and, on top of it, one node with its scheduler, proxy and firewall."""
    identities = control_plane_identities(*hosts)
    node = Subject(f"system:node:{node_name}", ("system:nodes",), (node_address, node_name))
    identities.by_authority["ca"] |= {
        "scheduler": Subject("system:kube-scheduler"),
        "kubelet": node,
        "kube-proxy": Subject("system:kube-proxy"),
        "kube-router": Subject("system:kube-router"),
    }
    return identities


def ensure_certificates(folder: Path, identities: Identities, *, now: datetime) -> bool:
    """Write all files unless an earlier run finished; True when written."""
    if (folder / COMPLETE).exists():
        return False
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    for authority_name, subjects in identities.by_authority.items():
        authority = new_authority(f"fleetward {authority_name}", now=now)
        write_pair(folder / authority_name, authority)
        for name, subject in subjects.items():
            write_pair(folder / name, issue(authority, subject, now=now))
    private, public = new_signing_key()
    write_private(folder / "service-account.key", private)
    (folder / "service-account.pub").write_bytes(public)
    (folder / COMPLETE).touch()
    return True


def read_pair(stem: Path) -> Pair:
    """The pair that :func:`write_pair` wrote."""
    return Pair(stem.with_suffix(".crt").read_bytes(), stem.with_suffix(".key").read_bytes())


def write_pair(stem: Path, pair: Pair) -> None:
    """``<stem>.crt`` for all, ``<stem>.key`` for the owner only."""
    stem.with_suffix(".crt").write_bytes(pair.certificate)
    write_private(stem.with_suffix(".key"), pair.key)


def write_private(file: Path, content: bytes) -> None:
    """Write a file that was never readable by others, not even while it was being written."""
    file.unlink(missing_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as handle:
        handle.write(content)
