"""An API server alone (etcd, API server, controller manager) for integration tests.

Needs no root and no node, starts in a few seconds, and runs any number of times side by side: each
has its own folder, ports and authorities. Pods can be created and are never scheduled.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from e2e.cluster.addresses import SERVICE_RANGE
from e2e.cluster.binaries import Binaries, ensure_binaries
from e2e.cluster.certificates import control_plane_identities, ensure_certificates
from e2e.cluster.controlplane import (
    ControlPlane,
    api_server,
    controller_manager,
    etcd,
)
from e2e.cluster.errors import ClusterError
from e2e.cluster.kubeconfig import write_kubeconfig, write_user_kubeconfig
from e2e.cluster.ports import free_ports
from e2e.cluster.processes import ProcessTable, Program
from e2e.cluster.settings import Settings, read_settings
from e2e.cluster.steps import Steps

NAMES = ("kube-controller-manager", "kube-apiserver", "etcd")
"""In the order in which they are stopped."""


@dataclass(frozen=True, slots=True)
class ApiServer:
    """A running API server.

    ``kubeconfig`` is the administrator's; ``audit_log`` has one JSON event per line (level
    Metadata, every request, written before the answer is sent).
    """

    kubeconfig: Path
    url: str
    audit_log: Path
    plane: ControlPlane
    table: ProcessTable

    def kubeconfig_for_user(self, name: str, *, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig for a user of that name, who may do what RBAC grants: at first nothing."""
        stem = name.replace(":", "_").replace("/", "_")
        file = self.plane.folder / "users" / f"{stem}.kubeconfig"
        file.parent.mkdir(exist_ok=True)
        return write_user_kubeconfig(
            file,
            pki=self.plane.pki,
            server=self.url,
            user=name,
            groups=groups,
            now=datetime.now(UTC),
        )

    def kubeconfig_for_service_account(self, namespace: str, name: str) -> Path:
        """A kubeconfig that counts as a service account: same user name, same groups, same RBAC."""
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
        user = f"system:serviceaccount:{namespace}:{name}"
        return self.kubeconfig_for_user(user, groups=(*groups, "system:authenticated"))

    def stop(self) -> None:
        """End its processes and wait until they are gone. May be called twice."""
        stop_programs(self.table)


def start_api_server(
    folder: Path, *, environ: Mapping[str, str] | None = None, outlive_caller: bool = False
) -> ApiServer:
    """Start an API server whose data lives in ``folder``, from nothing.

    What an earlier one left in the folder is removed. It ends with the caller, so that a killed
    test run leaves nothing behind, unless ``outlive_caller``; the kernel means the calling thread,
    so call this from the main thread or from one that lives as long as the server is needed.
    """
    settings = read_settings(environ)
    binaries = ensure_binaries(settings, steps=Steps())
    api = describe(folder.absolute(), binaries=binaries, settings=settings)
    api.stop()
    clear(api.plane.folder)
    prepare(api)
    try:
        start_programs(api, outlive_caller=outlive_caller)
    except ClusterError:
        api.stop()
        raise
    return api


def stop_api_server(folder: Path) -> None:
    """Stop the one whose folder this is, whoever started it."""
    settings = read_settings()
    stop_programs(ProcessTable(folder / "pids", folder / "logs", settings.environment))


def stop_programs(table: ProcessTable) -> None:
    """Each is gone before the next is asked."""
    for name in NAMES:
        table.stop(name)


def describe(folder: Path, *, binaries: Binaries, settings: Settings) -> ApiServer:
    """Pick ports; nothing is written or started."""
    api_port, etcd_port, etcd_peer_port = free_ports(3)
    plane = ControlPlane(
        kube=binaries.kube,
        folder=folder,
        bind="127.0.0.1",
        advertise=None,
        service_range=SERVICE_RANGE,
        api_port=api_port,
        etcd_port=etcd_port,
        etcd_peer_port=etcd_peer_port,
    )
    return ApiServer(
        kubeconfig=folder / "admin.kubeconfig",
        url=plane.url,
        audit_log=folder / "audit.log",
        plane=plane,
        table=ProcessTable(folder / "pids", folder / "logs", settings.environment),
    )


def clear(folder: Path) -> None:
    """Remove what an earlier API server wrote, and nothing else that may lie in the folder."""
    for name in ("etcd", "pki", "config", "logs", "pids", "users"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for log in folder.glob("audit*.log"):
        log.unlink()


def prepare(api: ApiServer) -> None:
    """Certificates, kubeconfigs and the audit policy."""
    plane = api.plane
    plane.config.mkdir(parents=True, exist_ok=True)
    ensure_certificates(plane.pki, control_plane_identities(), now=datetime.now(UTC))
    write_kubeconfig(api.kubeconfig, pki=plane.pki, server=plane.url, identity="admin")
    write_kubeconfig(
        plane.config / "controller-manager.kubeconfig",
        pki=plane.pki,
        server=plane.url,
        identity="controller-manager",
    )


def start_programs(api: ApiServer, *, outlive_caller: bool) -> None:
    """The store and the API server start together (the latter waits for the store by itself)."""
    keep = (lambda program: program) if outlive_caller else ends_with_caller
    store, server, controllers = (
        keep(program)
        for program in (etcd(api.plane), api_server(api.plane), controller_manager(api.plane))
    )
    for program in (store, server):
        api.table.ensure(program)
    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(api.table.wait_healthy, (store, server)))
    api.table.ensure(controllers)
    api.table.wait_healthy(controllers)


def ends_with_caller(program: Program) -> Program:
    """The kernel sends SIGTERM to the program when the thread that started it ends."""
    return replace(program, argv=("setpriv", "--pdeathsig", "TERM", "--", *program.argv))
