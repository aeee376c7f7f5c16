"""What the cluster takes from the machine: Linux, root and a few Debian packages."""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.commands import run
from e2e.cluster.errors import Unsupported
from e2e.cluster.settings import Settings
from e2e.cluster.steps import Steps

PACKAGE_OF_PROGRAM = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "iptables-save": "iptables",
    "ipset": "ipset",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "socat": "socat",
    "modprobe": "kmod",
    "nsenter": "util-linux",
    "mount": "mount",
    "busybox": "busybox-static",
}
CNI_PLUGINS = Path("/usr/lib/cni")
CNI_PACKAGE = "containernetworking-plugins"
CNI_NEEDED = ("bridge", "host-local", "loopback", "portmap")


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts about a machine that decide whether it can carry the cluster."""

    system: str
    user_id: int
    has_apt: bool


def observe_machine(settings: Settings) -> Machine:
    """Look at the machine that this runs on."""
    apt = shutil.which("apt-get", path=settings.environment["PATH"])
    return Machine(system=platform.system(), user_id=os.geteuid(), has_apt=apt is not None)


def check_machine(machine: Machine) -> None:
    """Refuse, with all reasons at once, a machine that cannot carry the cluster."""
    reasons = []
    if machine.system != "Linux":
        reasons.append(f"it needs Linux, and this is {machine.system}: use a Linux machine or VM")
    elif machine.user_id != 0:
        reasons.append(
            "it needs root, since containers, links and firewall rules belong to root: "
            "become root (or run it in a root shell of a VM) and try again"
        )
    if reasons:
        raise Unsupported("the local cluster cannot run here: " + "; ".join(reasons))


def missing_packages(settings: Settings, *, plugins: Path = CNI_PLUGINS) -> list[str]:
    """The Debian packages whose programs are not there, sorted."""
    path = settings.environment["PATH"]
    missing = {
        package
        for program, package in PACKAGE_OF_PROGRAM.items()
        if shutil.which(program, path=path) is None
    }
    if not all((plugins / plugin).exists() for plugin in CNI_NEEDED):
        missing.add(CNI_PACKAGE)
    return sorted(missing)


def ensure_packages(settings: Settings, *, steps: Steps) -> None:
    """Install what is missing with apt-get; refuse by name where there is no apt-get."""
    missing = missing_packages(settings)
    if not missing:
        return
    names = " ".join(missing)
    if not observe_machine(settings).has_apt:
        raise Unsupported(
            f"these Debian packages (or your system's equal of them) are missing: {names}; "
            "this is no Debian (no apt-get), so install them by hand"
        )
    environment = {**settings.environment, "DEBIAN_FRONTEND": "noninteractive"}
    with steps.step(f"install Debian packages: {names}"):
        run(["apt-get", "update", "-qq"], environment=environment)
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
        run(install, environment=environment)
