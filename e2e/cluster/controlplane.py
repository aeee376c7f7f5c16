"""etcd, API server, controller manager and scheduler as programs to run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.addresses import POD_RANGE
from e2e.cluster.configfile import write_config
from e2e.cluster.health import Client, https_ok_unverified
from e2e.cluster.processes import Program

ISSUER = "https://kubernetes.default.svc.cluster.local"

AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
"""
"""Who did what to which object and when, for every request, leases included, but no bodies."""


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """One control plane: its folder, ports and addresses.

    ``bind`` is where the API server listens, ``advertise`` the address that pods reach it under
    (none: it is for programs outside of any cluster, and ``kubernetes.default`` leads nowhere).
    ``scheduler_port`` and ``controller_manager_port`` 0 means: serves no port of its own.
    """

    kube: Path
    folder: Path
    bind: str
    advertise: str | None
    service_range: str
    api_port: int
    etcd_port: int
    etcd_peer_port: int
    controller_manager_port: int = 0
    scheduler_port: int = 0

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    @property
    def config(self) -> Path:
        return self.folder / "config"

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.api_port}"

    @property
    def client(self) -> Client:
        """Asks the API server as its administrator."""
        return Client(self.api_port, self.pki)

    def command(self, program: str, /, **flags: object) -> tuple[str, ...]:
        """``kube <program> --flag=value …``; underscores in the names stand for dashes."""
        words = (f"--{flag.replace('_', '-')}={value}" for flag, value in flags.items())
        return (str(self.kube), program, *words)


def etcd(plane: ControlPlane) -> Program:
    """The store; without fsync, so that a power cut may lose it and a killed process does not."""
    here = f"https://127.0.0.1:{plane.etcd_port}"
    peer = f"https://127.0.0.1:{plane.etcd_peer_port}"
    certificate, key = plane.pki / "etcd.crt", plane.pki / "etcd.key"
    authority = plane.pki / "etcd-ca.crt"
    argv = plane.command(
        "etcd",
        name="local",
        data_dir=plane.folder / "etcd",
        listen_client_urls=here,
        advertise_client_urls=here,
        listen_peer_urls=peer,
        initial_advertise_peer_urls=peer,
        initial_cluster=f"local={peer}",
        cert_file=certificate,
        key_file=key,
        trusted_ca_file=authority,
        client_cert_auth="true",
        peer_cert_file=certificate,
        peer_key_file=key,
        peer_trusted_ca_file=authority,
        peer_client_cert_auth="true",
        unsafe_no_fsync="true",
        auto_compaction_retention="30m",
        log_level="warn",
    )
    client = Client(plane.etcd_port, plane.pki, "etcd-ca", "apiserver-etcd-client")
    return Program("etcd", argv, healthy=lambda: client.ok("/health"))


def api_server(plane: ControlPlane) -> Program:
    """RBAC, node restriction, Pod Security by namespace label, audit log, aggregation."""
    pki = plane.pki
    argv = plane.command(
        "kube-apiserver",
        secure_port=plane.api_port,
        tls_cert_file=pki / "apiserver.crt",
        tls_private_key_file=pki / "apiserver.key",
        client_ca_file=pki / "ca.crt",
        authorization_mode="Node,RBAC",
        enable_admission_plugins="NodeRestriction",
        allow_privileged="true",
        profiling="false",
        service_cluster_ip_range=plane.service_range,
        **address_flags(plane),
        **store_flags(plane),
        **token_flags(plane),
        **kubelet_flags(plane),
        **aggregation_flags(plane),
        **audit_flags(plane),
    )
    return Program("kube-apiserver", argv, healthy=lambda: plane.client.ok("/readyz"))


def address_flags(plane: ControlPlane) -> dict[str, object]:
    """Where it listens, and what the endpoints of the service ``kubernetes`` say."""
    if plane.advertise is None:
        return {"bind_address": plane.bind, "endpoint_reconciler_type": "none"}
    return {"bind_address": plane.bind, "advertise_address": plane.advertise}


def store_flags(plane: ControlPlane) -> dict[str, object]:
    """How the API server reaches etcd."""
    return {
        "etcd_servers": f"https://127.0.0.1:{plane.etcd_port}",
        "etcd_cafile": plane.pki / "etcd-ca.crt",
        "etcd_certfile": plane.pki / "apiserver-etcd-client.crt",
        "etcd_keyfile": plane.pki / "apiserver-etcd-client.key",
    }


def token_flags(plane: ControlPlane) -> dict[str, object]:
    """Service-account tokens."""
    return {
        "service_account_issuer": ISSUER,
        "service_account_key_file": plane.pki / "service-account.pub",
        "service_account_signing_key_file": plane.pki / "service-account.key",
    }


def kubelet_flags(plane: ControlPlane) -> dict[str, object]:
    """Logs and exec go to the node's address: there is no DNS that knows its name."""
    return {
        "kubelet_certificate_authority": plane.pki / "ca.crt",
        "kubelet_client_certificate": plane.pki / "apiserver-kubelet-client.crt",
        "kubelet_client_key": plane.pki / "apiserver-kubelet-client.key",
        "kubelet_preferred_address_types": "InternalIP",
    }


def aggregation_flags(plane: ControlPlane) -> dict[str, object]:
    """Extension API servers trust the API server's word on who calls."""
    return {
        "requestheader_client_ca_file": plane.pki / "front-proxy-ca.crt",
        "requestheader_allowed_names": "front-proxy-client",
        "requestheader_username_headers": "X-Remote-User",
        "requestheader_group_headers": "X-Remote-Group",
        "requestheader_extra_headers_prefix": "X-Remote-Extra-",
        "proxy_client_cert_file": plane.pki / "front-proxy-client.crt",
        "proxy_client_key_file": plane.pki / "front-proxy-client.key",
    }


def audit_flags(plane: ControlPlane) -> dict[str, object]:
    """Written before the answer is sent, so that a test finds its own request in the log."""
    return {
        "audit_policy_file": write_config(plane.config, "audit-policy.yaml", AUDIT_POLICY),
        "audit_log_path": plane.folder / "audit.log",
        "audit_log_mode": "blocking",
        "audit_log_maxsize": 200,
        "audit_log_maxbackup": 2,
    }


def controller_manager(plane: ControlPlane) -> Program:
    """All controllers; alone, so without leader election and its writes."""
    kubeconfig = plane.config / "controller-manager.kubeconfig"
    argv = plane.command(
        "kube-controller-manager",
        bind_address="127.0.0.1",
        secure_port=plane.controller_manager_port,
        kubeconfig=kubeconfig,
        authentication_kubeconfig=kubeconfig,
        authorization_kubeconfig=kubeconfig,
        leader_elect="false",
        use_service_account_credentials="true",
        service_account_private_key_file=plane.pki / "service-account.key",
        root_ca_file=plane.pki / "ca.crt",
        cluster_signing_cert_file=plane.pki / "ca.crt",
        cluster_signing_key_file=plane.pki / "ca.key",
        allocate_node_cidrs="true",
        cluster_cidr=POD_RANGE,
        # The default (20 a second) alone makes the first start three seconds longer.
        kube_api_qps=500,
        kube_api_burst=1000,
        service_cluster_ip_range=plane.service_range,
        profiling="false",
    )
    return Program("kube-controller-manager", argv, healthy=lambda: controllers_work(plane))


def controllers_work(plane: ControlPlane) -> bool:
    """They made the first objects that every namespace gets."""
    namespace = "/api/v1/namespaces/default"
    return plane.client.ok(f"{namespace}/serviceaccounts/default") and plane.client.ok(
        f"{namespace}/configmaps/kube-root-ca.crt"
    )


def scheduler(plane: ControlPlane) -> Program:
    """Alone as well."""
    kubeconfig = plane.config / "scheduler.kubeconfig"
    argv = plane.command(
        "kube-scheduler",
        bind_address="127.0.0.1",
        secure_port=plane.scheduler_port,
        kubeconfig=kubeconfig,
        authentication_kubeconfig=kubeconfig,
        authorization_kubeconfig=kubeconfig,
        leader_elect="false",
        profiling="false",
    )
    return Program(
        "kube-scheduler",
        argv,
        healthy=lambda: https_ok_unverified(plane.scheduler_port, "/readyz"),
    )
