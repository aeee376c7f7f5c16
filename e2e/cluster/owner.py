"""One machine carries one cluster: who has it, and one ``up`` or ``down`` at a time."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster.errors import Occupied
from e2e.cluster.paths import Paths, cluster_paths
from e2e.cluster.processes import ProcessTable
from e2e.cluster.settings import Settings


@contextmanager
def machine_lock(paths: Paths) -> Iterator[None]:
    """Held while the cluster changes; a second ``up`` or ``down`` waits for the first."""
    lock_file = paths.run.with_suffix(".lock")
    with lock_file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def process_table(paths: Paths, settings: Settings) -> ProcessTable:
    """The long-running programs of the cluster."""
    return ProcessTable(paths.pids, paths.logs, settings.environment)


def anything_alive(paths: Paths, settings: Settings) -> bool:
    """Whether any recorded program runs, whoever started it."""
    table = process_table(paths, settings)
    return any(table.find(name) for name in table.names())


def current_owner(paths: Paths, settings: Settings) -> Paths:
    """The paths of the cluster that has (or half has) this machine; ours when nobody's has.

    :class:`Occupied` when it is a live cluster of another checkout. When that checkout was deleted
    from under its running cluster, anybody may take it down.
    """
    if not paths.owner.exists():
        return paths
    data = json.loads(paths.owner.read_text())
    checkout = Path(data["checkout"])
    if checkout == paths.checkout and Path(data["cache"]) == paths.cache:
        return paths
    theirs = Settings(cache=Path(data["cache"]), environment=settings.environment)
    if checkout != paths.checkout and checkout.exists() and anything_alive(paths, settings):
        raise Occupied(
            f"the local cluster of another checkout runs on this machine: {checkout}. "
            "Stop it there first (`make down`); one machine carries one kubelet"
        )
    return cluster_paths(theirs, checkout=checkout)


def claim(paths: Paths) -> None:
    """Write down whose cluster it is."""
    paths.run.mkdir(parents=True, exist_ok=True)
    partial = paths.owner.with_suffix(".partial")
    partial.write_text(json.dumps({"checkout": str(paths.checkout), "cache": str(paths.cache)}))
    partial.rename(paths.owner)
