"""What of the cluster is on the machine: processes, mounts, links, routes, firewall rules.

``down`` removes what these functions find, and then asks them again.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.before import Before, observe_rules, read_before
from e2e.cluster.commands import run
from e2e.cluster.firewall import describe, find_additions
from e2e.cluster.network import (
    observe_links,
    observe_routes,
    own_links,
    own_namespaces,
    routes_within,
)
from e2e.cluster.paths import Paths
from e2e.cluster.settings import Settings

POD_CGROUP = "/kubepods"
IPSET_PREFIXES = ("KUBE-", "kube-router-")
RUNTIME_PROGRAMS = ("containerd", "containerd-shim-runc-v2", "containerd-shim", "runc")
NODE_PROGRAMS = ("kube", "kube-router")


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """What decides whether a process belongs to the cluster."""

    pid: int
    executable: str
    argv: tuple[str, ...]
    cgroups: str


def find_leftovers(paths: Paths, settings: Settings) -> list[str]:
    """One line for everything of the cluster that is on the machine now."""
    before = read_before(paths)
    lines = [
        f"process {facts.pid}: {' '.join(facts.argv)[:150]}" for facts in find_processes(paths)
    ]
    lines += [f"mount: {mount}" for mount in find_mounts(paths)]
    lines += [f"network namespace: {name}" for name in own_namespaces(before, settings=settings)]
    lines += [f"link: {name}" for name in own_links(observe_links(settings))]
    lines += [f"route: {route}" for route in routes_within(observe_routes(settings))]
    lines += find_rules(before, settings=settings)
    lines += [f"ipset: {name}" for name in find_ipsets(settings)]
    return lines


def find_processes(paths: Paths) -> list[ProcessFacts]:
    """All live processes of the cluster, recorded or not, and those inside its pods."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    facts = [each for pid in pids if (each := observe_process(pid))]
    return [each for each in facts if each.pid != os.getpid() and is_ours(each, paths)]


def observe_process(pid: int) -> ProcessFacts | None:
    """None for a process that is gone, a zombie, or the kernel's own."""
    folder = Path("/proc") / str(pid)
    try:
        argv = tuple((folder / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1])
        executable = str((folder / "exe").readlink()).removesuffix(" (deleted)")
        cgroups = (folder / "cgroup").read_text()
    except OSError:
        return None
    return ProcessFacts(pid, executable, argv, cgroups) if argv else None


def is_ours(facts: ProcessFacts, paths: Paths) -> bool:
    """A process in a pod, or one of the cluster's programs that works on its folders.

    Somebody's kubectl on our kubeconfig is not ours to end, and neither is an API server alone.
    """
    if any(line.split(":")[-1].startswith(POD_CGROUP) for line in facts.cgroups.splitlines()):
        return True
    name = Path(facts.executable).name
    places = (f"{paths.run}/", f"{paths.state}/")
    touches = any(place in word for word in facts.argv for place in places)
    if name in RUNTIME_PROGRAMS:
        return touches
    return name in NODE_PROGRAMS and touches and "kubectl" not in facts.argv[:2]


def find_mounts(paths: Paths) -> list[str]:
    """Mount points under the cluster's folders, innermost first."""
    return mounts_within(
        Path("/proc/self/mountinfo").read_text(),
        [str(folder) for folder in (paths.run, paths.state, paths.containerd_root)],
    )


def mounts_within(mountinfo: str, folders: list[str]) -> list[str]:
    """The same for a given ``mountinfo``; spaces in paths are written as octal escapes there."""
    points = [unescape(line.split()[4]) for line in mountinfo.splitlines()]
    ours = [
        point
        for point in points
        if any(point == folder or point.startswith(f"{folder}/") for folder in folders)
    ]
    return sorted(ours, key=lambda point: point.count("/"), reverse=True)


def unescape(word: str) -> str:
    r"""``\040`` and its like to the characters they stand for."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), word)


def find_rules(before: Before, *, settings: Settings) -> list[str]:
    """Chains and rules that were not there before."""
    return [
        line
        for family, saved in observe_rules(settings).items()
        for line in describe(family, find_additions(saved, before=before.rules.get(family, "")))
    ]


def find_ipsets(settings: Settings) -> list[str]:
    """Address sets that the firewall made."""
    names = run(["ipset", "list", "-n"], environment=settings.environment).split()
    return [name for name in names if name.removeprefix("inet6:").startswith(IPSET_PREFIXES)]
