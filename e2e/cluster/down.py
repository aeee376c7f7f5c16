"""Stop the cluster and put the machine back as it was."""

from __future__ import annotations

import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2e.cluster.before import observe_rules, read_before, restore_kernel
from e2e.cluster.commands import run, succeeds
from e2e.cluster.containerd import forget_sandboxes, remove_containers
from e2e.cluster.errors import ClusterError
from e2e.cluster.firewall import FAMILIES, build_undo, find_additions
from e2e.cluster.leftovers import (
    POD_CGROUP,
    find_ipsets,
    find_leftovers,
    find_mounts,
    find_processes,
)
from e2e.cluster.network import own_namespaces, remove_links, remove_namespaces
from e2e.cluster.owner import current_owner, machine_lock, process_table
from e2e.cluster.paths import Paths
from e2e.cluster.processes import POLL_SECONDS, send
from e2e.cluster.settings import Settings
from e2e.cluster.steps import Steps

STOP_WAVES = (
    ("kube-router", "kube-proxy", "kubelet"),
    ("kube-scheduler", "kube-controller-manager"),
    ("kube-apiserver",),
    ("etcd",),
)
"""The node first, so that nothing restarts a pod; the store last, so that nobody misses it."""

STATE_FOLDERS = ("etcd", "kubelet", "pki", "config", "bin", "home")
CGROUPS = Path("/sys/fs/cgroup")


def down(paths: Paths, settings: Settings, *, steps: Steps) -> None:
    """Leave no process, mount, link, route or firewall rule; images and logs stay.

    Works from any state that a crash or a half-finished ``up`` or ``down`` can leave.
    """
    with machine_lock(paths):
        tear_down(current_owner(paths, settings), settings, steps=steps)


def tear_down(paths: Paths, settings: Settings, *, steps: Steps) -> None:
    """As :func:`down`, under the lock already."""
    with steps.step("stop the kubelet and the control plane"):
        stop_programs(paths, settings)
    with steps.step("remove the pods"):
        stop_runtime(paths, settings, steps=steps)
    with steps.step("remove mounts, links, routes and firewall rules"):
        clean_machine(paths, settings)
    left = find_leftovers(paths, settings)
    if left:
        raise ClusterError("could not remove everything:\n  " + "\n  ".join(left))
    forget(paths)


def stop_programs(paths: Paths, settings: Settings) -> None:
    """Wave by wave; each is gone before the next is asked."""
    table = process_table(paths, settings)
    for wave in STOP_WAVES:
        with ThreadPoolExecutor(max_workers=len(wave)) as pool:
            list(pool.map(lambda name: table.stop(name, patience_seconds=6.0), wave))


def stop_runtime(paths: Paths, settings: Settings, *, steps: Steps) -> None:
    """Containers by containerd while it lives, then containerd, then whatever is still there."""
    table = process_table(paths, settings)
    if table.find("containerd"):
        try:
            remove_containers(paths, settings=settings)
        except ClusterError as error:
            steps.tell(f"  containerd kept some containers; ending their processes: {error}")
    table.stop("containerd")
    end_strays(paths)
    forget_sandboxes(paths)


def end_strays(paths: Paths, *, seconds: float = 20.0) -> None:
    """End the cluster's processes that no record names: shims, pods of a dead containerd."""
    deadline = time.monotonic() + seconds
    while strays := find_processes(paths):
        if time.monotonic() > deadline:
            return
        for facts in strays:
            send(facts.pid, signal.SIGKILL)
        time.sleep(POLL_SECONDS)


def clean_machine(paths: Paths, settings: Settings) -> None:
    """Everything outside our folders."""
    before = read_before(paths)
    for mount in find_mounts(paths):
        if not succeeds(["umount", mount], environment=settings.environment):
            succeeds(["umount", "--lazy", mount], environment=settings.environment)
    remove_namespaces(own_namespaces(before, settings=settings), settings=settings)
    for family, saved in observe_rules(settings).items():
        undo = build_undo(find_additions(saved, before=before.rules.get(family, "")))
        if undo:
            restore = [f"{FAMILIES[family]}-restore", "--noflush"]
            run(restore, environment=settings.environment, stdin=undo)
    remove_links(settings)
    for name in find_ipsets(settings):
        succeeds(["ipset", "destroy", name], environment=settings.environment)
    restore_kernel(before)
    remove_cgroups(CGROUPS)


def remove_cgroups(root: Path) -> None:
    """The kubelet's empty cgroups, in every hierarchy, innermost first."""
    for hierarchy in (root, *root.glob("*")):
        top = hierarchy / POD_CGROUP.strip("/")
        if not top.is_dir():
            continue
        folders = [top, *(folder for folder in top.rglob("*") if folder.is_dir())]
        for folder in sorted(folders, key=lambda each: len(each.parts), reverse=True):
            try:
                folder.rmdir()
            except OSError:
                # The kernel lets go of a cgroup a moment after its last process; the next
                # `up` uses what is left, and an empty cgroup holds nothing.
                continue


def forget(paths: Paths) -> None:
    """Remove the cluster's own files, except logs, which are read after the end, too."""
    for name in STATE_FOLDERS:
        shutil.rmtree(paths.state / name, ignore_errors=True)
    paths.admin_kubeconfig.unlink(missing_ok=True)
    shutil.rmtree(paths.run, ignore_errors=True)
