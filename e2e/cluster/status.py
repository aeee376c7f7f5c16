"""Which programs of the cluster serve."""

from __future__ import annotations

from e2e.cluster.binaries import ensure_binaries
from e2e.cluster.kubelet import node_ready
from e2e.cluster.owner import current_owner, process_table
from e2e.cluster.paths import Paths
from e2e.cluster.programs import describe_plane, write_programs
from e2e.cluster.settings import Settings
from e2e.cluster.steps import Steps


def print_status(paths: Paths, settings: Settings) -> bool:
    """One line per program; True when all serve and the node is Ready."""
    current_owner(paths, settings)
    if not paths.owner.exists():
        print("the cluster does not run: start it with `make cluster-up`")
        return False
    binaries = ensure_binaries(settings, steps=Steps())
    table = process_table(paths, settings)
    fine = True
    for program in write_programs(paths, binaries, settings=settings).all():
        record = table.find(program.name)
        serves = record is not None and program.healthy()
        fine = fine and serves
        state = "serves" if serves else ("runs, but does not answer" if record else "does not run")
        print(f"  {program.name:<24} {state}{f' (pid {record.pid})' if record else ''}")
    ready = node_ready(describe_plane(paths, binaries))
    print(f"  {'node':<24} {'Ready' if ready else 'not Ready'}")
    print(f"  KUBECONFIG={paths.admin_kubeconfig}")
    return fine and ready
