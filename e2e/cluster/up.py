"""Start the cluster, or whatever of it does not run."""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from e2e.cluster.addons import build_firewall_access
from e2e.cluster.addresses import PORTS
from e2e.cluster.before import record_before
from e2e.cluster.binaries import Binaries, ensure_binaries
from e2e.cluster.certificates import COMPLETE
from e2e.cluster.commands import run
from e2e.cluster.configfile import write_json_config
from e2e.cluster.containerd import containers, forget_sandboxes, remove_containers
from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.debian import check_machine, ensure_packages, observe_machine
from e2e.cluster.down import tear_down
from e2e.cluster.errors import Occupied, ProcessFailed
from e2e.cluster.health import port_taken
from e2e.cluster.images import describe_sandbox_image, import_sandbox_image
from e2e.cluster.kubelet import node_ready
from e2e.cluster.network import ensure_network
from e2e.cluster.owner import anything_alive, claim, current_owner, machine_lock, process_table
from e2e.cluster.paths import Paths
from e2e.cluster.processes import POLL_SECONDS, ProcessTable, Program
from e2e.cluster.programs import Programs, describe_plane, ensure_identities, write_programs
from e2e.cluster.settings import Settings
from e2e.cluster.steps import Steps

READY_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class Start:
    """One ``up`` under way. ``fresh``: there is no earlier state that is to be taken up again."""

    paths: Paths
    settings: Settings
    steps: Steps
    binaries: Binaries
    plane: ControlPlane
    programs: Programs
    table: ProcessTable
    fresh: bool


def up(paths: Paths, settings: Settings, *, steps: Steps) -> None:
    """Return when every program serves and the node is Ready; start what does not run."""
    check_machine(observe_machine(settings))
    with machine_lock(paths):
        ensure_packages(settings, steps=steps)
        binaries = ensure_binaries(settings, steps=steps)
        take_machine(paths, settings, steps=steps)
        start = prepare(paths, settings, steps=steps, binaries=binaries)
        with ThreadPoolExecutor(max_workers=2) as pool:
            halves = [pool.submit(start_plane, start), pool.submit(start_runtime, start)]
            for half in halves:
                half.result()
        start_node(start)
    steps.total(f"cluster is ready: export KUBECONFIG={paths.admin_kubeconfig}")


def take_machine(paths: Paths, settings: Settings, *, steps: Steps) -> None:
    """Make sure that what is left of another, or of a broken, cluster is gone first."""
    owner = current_owner(paths, settings)
    alive = anything_alive(paths, settings)
    lost = alive and not (paths.pki / COMPLETE).exists()
    if owner != paths or lost:
        tear_down(owner, settings, steps=steps)
        alive = False
    if not alive:
        taken = [str(port) for port in PORTS if port_taken(port)]
        if taken:
            raise Occupied(
                f"TCP port {', '.join(taken)} of this machine is taken by another program; "
                "see which with `ss -ltnp`, and stop it"
            )


def prepare(paths: Paths, settings: Settings, *, steps: Steps, binaries: Binaries) -> Start:
    """Folders, the picture of the machine as it was, and the programs' descriptions."""
    fresh = not (paths.state / "etcd").exists()
    if fresh and not paths.machine_before.exists():
        shutil.rmtree(paths.logs, ignore_errors=True)
        for log in paths.state.glob("audit*.log"):
            log.unlink()
    record_before(paths, settings)
    claim(paths)
    return Start(
        paths=paths,
        settings=settings,
        steps=steps,
        binaries=binaries,
        plane=describe_plane(paths, binaries),
        programs=write_programs(paths, binaries, settings=settings),
        table=process_table(paths, settings),
        fresh=fresh,
    )


def start_plane(start: Start) -> None:
    """Certificates, store, API server, then its controllers."""
    with start.steps.step("certificates"):
        ensure_identities(start.paths, start.plane)
    programs = start.programs
    with start.steps.step("etcd and API server"):
        started = [start.table.ensure(each) for each in (programs.etcd, programs.api_server)]
        for each in (programs.etcd, programs.api_server):
            start.table.wait_healthy(each)
    with start.steps.step("controller manager and scheduler"):
        run_all(start, programs.controller_manager, programs.scheduler)
    if any(started):
        allow_firewall(start)
    start.table.ensure(programs.kube_proxy)


def allow_firewall(start: Start) -> None:
    """Grant kube-router what it reads."""
    access = {"apiVersion": "v1", "kind": "List", "items": build_firewall_access()}
    file = write_json_config(start.paths.config, "kube-router-access.json", access)
    kubectl = [str(start.paths.bin / "kubectl"), "apply", "--validate=false", "-f", str(file)]
    environment = {**start.settings.environment, "KUBECONFIG": str(start.paths.admin_kubeconfig)}
    run(kubectl, environment=environment)


def start_runtime(start: Start) -> None:
    """Links and routes, containerd without what an earlier cluster left in it, sandbox image."""
    with start.steps.step("links and routes"):
        ensure_network(start.settings)
    program = start.programs.containerd
    with start.steps.step("containerd"):
        run_all(start, program)
        if start.fresh and containers(start.paths, settings=start.settings):
            remove_containers(start.paths, settings=start.settings)
            start.table.stop(program.name)
            forget_sandboxes(start.paths)
            run_all(start, program)
    with start.steps.step("sandbox image"):
        image = describe_sandbox_image(start.settings)
        import_sandbox_image(image, machine=platform.machine(), settings=start.settings)


def start_node(start: Start) -> None:
    """The kubelet and the proxy; the firewall comes last, since it needs the node's pod range."""
    programs = start.programs
    with start.steps.step("kubelet, until the node is Ready"):
        run_all(start, programs.kubelet)
        wait_until(lambda: node_ready(start.plane), start=start, program=programs.kubelet)
    with start.steps.step("proxy and NetworkPolicy firewall"):
        run_all(start, programs.kube_proxy, programs.kube_router)


def run_all(start: Start, *programs: Program) -> None:
    """Start all of them, then wait for each."""
    for program in programs:
        start.table.ensure(program)
    for program in programs:
        start.table.wait_healthy(program)


def wait_until(condition: Callable[[], bool], *, start: Start, program: Program) -> None:
    """Wait for something that ``program`` brings about."""
    deadline = time.monotonic() + READY_SECONDS
    while not condition():
        if start.table.find(program.name) is None or time.monotonic() > deadline:
            log = start.table.logs / f"{program.name}.log"
            raise ProcessFailed(f"the node did not become Ready; {log} tells why")
        time.sleep(POLL_SECONDS)
