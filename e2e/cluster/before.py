"""What the machine looked like before the first ``up``, so that ``down`` can put it back."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from e2e.cluster.commands import run
from e2e.cluster.errors import Occupied
from e2e.cluster.firewall import FAMILIES, parse_rules
from e2e.cluster.paths import Paths
from e2e.cluster.settings import Settings

KERNEL_SETTINGS = (
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/route_localnet",
    "net/bridge/bridge-nf-call-iptables",
    "net/bridge/bridge-nf-call-ip6tables",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
"""Those that we, the kubelet and kube-proxy change."""

NAMESPACES = Path("/run/netns")
SYSCTL = Path("/proc/sys")


@dataclass(frozen=True, slots=True)
class Before:
    """Saved rules by family, named network namespaces, kernel settings, files that existed."""

    rules: dict[str, str] = field(default_factory=dict)
    namespaces: tuple[str, ...] = ()
    kernel: dict[str, str] = field(default_factory=dict)


def observe_rules(settings: Settings) -> dict[str, str]:
    """What ``iptables-save`` and ``ip6tables-save`` print."""
    return {
        family: run([f"{command}-save"], environment=settings.environment)
        for family, command in FAMILIES.items()
    }


def record_before(paths: Paths, settings: Settings) -> Before:
    """Look and write it down, once per cluster; refuse where another Kubernetes has its chains."""
    if paths.machine_before.exists():
        return read_before(paths)
    rules = observe_rules(settings)
    chains = [
        chain
        for saved in rules.values()
        for table in parse_rules(saved).values()
        for chain in table.chains
    ]
    foreign = sorted({chain for chain in chains if chain.startswith("KUBE-")})
    if foreign:
        raise Occupied(
            f"this machine has firewall chains of another Kubernetes ({', '.join(foreign[:3])}…): "
            "stop it first, since one machine carries one kubelet. If they are what is left of a "
            "half-stopped local cluster, `make down` removes them"
        )
    before = Before(rules, tuple(network_namespaces()), read_kernel())
    paths.run.mkdir(parents=True, exist_ok=True)
    partial = paths.machine_before.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(before)))
    partial.rename(paths.machine_before)
    return before


def read_before(paths: Paths) -> Before:
    """What :func:`record_before` wrote; empty where there is nothing."""
    if not paths.machine_before.exists():
        return Before()
    data = json.loads(paths.machine_before.read_text())
    return Before(data["rules"], tuple(data["namespaces"]), data["kernel"])


def network_namespaces() -> list[str]:
    """Names of the machine's network namespaces."""
    return sorted(file.name for file in NAMESPACES.glob("*"))


def read_kernel() -> dict[str, str]:
    """The settings that exist on this kernel."""
    files = {name: SYSCTL / name for name in KERNEL_SETTINGS}
    return {name: file.read_text().strip() for name, file in files.items() if file.exists()}


def restore_kernel(before: Before) -> None:
    """Write back what differs."""
    now = read_kernel()
    for name, value in before.kernel.items():
        if now.get(name) not in (None, value):
            (SYSCTL / name).write_text(value)
