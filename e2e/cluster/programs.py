"""The full cluster of one checkout: what it is made of."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from datetime import UTC, datetime

from e2e.cluster.addons import kube_proxy, kube_router
from e2e.cluster.addresses import (
    API_PORT,
    CONTROLLER_MANAGER_PORT,
    ETCD_PEER_PORT,
    ETCD_PORT,
    FIRST_SERVICE_ADDRESS,
    NODE_ADDRESS,
    NODE_NAME,
    SCHEDULER_PORT,
    SERVICE_RANGE,
)
from e2e.cluster.binaries import Binaries
from e2e.cluster.certificates import ensure_certificates, node_identities
from e2e.cluster.containerd import containerd
from e2e.cluster.controlplane import (
    ControlPlane,
    api_server,
    controller_manager,
    etcd,
    scheduler,
)
from e2e.cluster.images import describe_sandbox_image
from e2e.cluster.kubeconfig import write_kubeconfig
from e2e.cluster.kubelet import kubelet
from e2e.cluster.paths import Paths
from e2e.cluster.processes import Program
from e2e.cluster.settings import Settings

CLIENTS = ("controller-manager", "scheduler", "kubelet", "kube-proxy", "kube-router")
"""Identities with a kubeconfig of their own."""


@dataclass(frozen=True, slots=True)
class Programs:
    """All programs, in the order of their start."""

    etcd: Program
    api_server: Program
    controller_manager: Program
    scheduler: Program
    containerd: Program
    kubelet: Program
    kube_proxy: Program
    kube_router: Program

    def all(self) -> tuple[Program, ...]:
        return (
            self.etcd,
            self.api_server,
            self.controller_manager,
            self.scheduler,
            self.containerd,
            self.kubelet,
            self.kube_proxy,
            self.kube_router,
        )


def describe_plane(paths: Paths, binaries: Binaries) -> ControlPlane:
    """The control plane of the full cluster, on its fixed ports."""
    return ControlPlane(
        kube=binaries.kube,
        folder=paths.state,
        bind="0.0.0.0",
        advertise=NODE_ADDRESS,
        service_range=SERVICE_RANGE,
        api_port=API_PORT,
        etcd_port=ETCD_PORT,
        etcd_peer_port=ETCD_PEER_PORT,
        controller_manager_port=CONTROLLER_MANAGER_PORT,
        scheduler_port=SCHEDULER_PORT,
    )


def write_programs(paths: Paths, binaries: Binaries, *, settings: Settings) -> Programs:
    """Describe the programs, and write what they read that is no secret (where it changed)."""
    plane = describe_plane(paths, binaries)
    write_commands(paths, binaries)
    return Programs(
        etcd=etcd(plane),
        api_server=api_server(plane),
        controller_manager=controller_manager(plane),
        scheduler=scheduler(plane),
        containerd=containerd(paths, sandbox_image=describe_sandbox_image(settings).reference),
        kubelet=kubelet(paths, plane),
        kube_proxy=kube_proxy(plane),
        kube_router=kube_router(binaries.kube_router, plane),
    )


def ensure_identities(paths: Paths, plane: ControlPlane) -> None:
    """Certificates and kubeconfigs, once per cluster."""
    identities = node_identities(
        NODE_ADDRESS, FIRST_SERVICE_ADDRESS, node_name=NODE_NAME, node_address=NODE_ADDRESS
    )
    written = ensure_certificates(paths.pki, identities, now=datetime.now(UTC))
    files = {paths.config / f"{name}.kubeconfig": name for name in CLIENTS}
    files[paths.admin_kubeconfig] = "admin"
    for file, identity in files.items():
        if written or not file.exists():
            write_kubeconfig(file, pki=paths.pki, server=plane.url, identity=identity)


def write_commands(paths: Paths, binaries: Binaries) -> None:
    """``kubectl``, ``helm`` and ``ctr`` that mean this cluster, and keep out of one's home."""
    home = paths.state / "home"
    common = f'export KUBECONFIG="${{KUBECONFIG:-{paths.admin_kubeconfig}}}" KUBERC=off\n'
    caches = f'export KUBECACHEDIR="{home}/kube"\n'
    helm = "".join(
        f'export HELM_{kind}_HOME="{home}/helm/{kind.lower()}"\n'
        for kind in ("CACHE", "CONFIG", "DATA")
    )
    scripts = {
        "kubectl": f'{common}{caches}exec "{binaries.kube}" kubectl "$@"\n',
        "helm": f'{common}{caches}{helm}exec "{binaries.helm}" "$@"\n',
        "ctr": f'exec /usr/bin/ctr -a "{paths.containerd_socket}" -n k8s.io "$@"\n',
    }
    paths.bin.mkdir(parents=True, exist_ok=True)
    for name, body in scripts.items():
        script = paths.bin / name
        script.write_text(f"#!/bin/sh\n{body}")
        script.chmod(script.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
