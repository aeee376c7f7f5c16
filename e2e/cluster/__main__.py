"""The command line: ``python -m e2e.cluster up|down|status|…``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from e2e.cluster.apiserver import start_api_server, stop_api_server
from e2e.cluster.binaries import ensure_binaries
from e2e.cluster.commands import succeeds
from e2e.cluster.debian import check_machine, observe_machine
from e2e.cluster.down import down
from e2e.cluster.errors import ClusterError
from e2e.cluster.leftovers import find_leftovers
from e2e.cluster.owner import current_owner
from e2e.cluster.paths import Paths, cluster_paths
from e2e.cluster.settings import Settings, read_settings
from e2e.cluster.status import print_status
from e2e.cluster.steps import Steps
from e2e.cluster.up import up


def command_up(paths: Paths, settings: Settings) -> int:
    up(paths, settings, steps=Steps(quiet_below_seconds=0.1))
    return 0


def command_down(paths: Paths, settings: Settings) -> int:
    check_machine(observe_machine(settings))
    if not succeeds(["iptables-save"], environment=settings.environment):
        print("nothing to stop: the cluster's Debian packages are not installed")
        return 0
    steps = Steps(quiet_below_seconds=0.1)
    down(paths, settings, steps=steps)
    steps.total("cluster is stopped, and nothing of it is left")
    return 0


def command_status(paths: Paths, settings: Settings) -> int:
    return 0 if print_status(paths, settings) else 1


def command_leftovers(paths: Paths, settings: Settings) -> int:
    check_machine(observe_machine(settings))
    left = find_leftovers(current_owner(paths, settings), settings)
    print("\n".join(left) or "nothing of the cluster is on this machine")
    return 1 if left else 0


def command_build(paths: Paths, settings: Settings) -> int:
    print(ensure_binaries(settings, steps=Steps()).folder)
    return 0


def command_apiserver_up(paths: Paths, _: Settings) -> int:
    steps = Steps()
    api = start_api_server(paths.lone_api_server, outlive_caller=True)
    steps.total(f"API server is ready: export KUBECONFIG={api.kubeconfig}")
    return 0


def command_apiserver_down(paths: Paths, _: Settings) -> int:
    stop_api_server(paths.lone_api_server)
    return 0


COMMANDS: dict[str, tuple[Callable[[Paths, Settings], int], str]] = {
    "up": (command_up, "start the cluster, or what of it does not run"),
    "down": (command_down, "stop it and leave nothing behind (images stay in the cache)"),
    "status": (command_status, "which programs serve; exit status 1 unless all do"),
    "leftovers": (command_leftovers, "what of the cluster is on the machine; 1 if anything"),
    "apiserver-up": (command_apiserver_up, "start an API server alone (no root, no node)"),
    "apiserver-down": (command_apiserver_down, "stop that one"),
    "build": (command_build, "build the binaries into the cache and print where they are"),
}


def main() -> int:
    """Parse, run, and turn a :class:`ClusterError` into a message and status 1."""
    parser = argparse.ArgumentParser(prog="python -m e2e.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (_, words) in COMMANDS.items():
        commands.add_parser(name, help=words)
    arguments = parser.parse_args()
    settings = read_settings()
    try:
        return COMMANDS[arguments.command][0](cluster_paths(settings), settings)
    except ClusterError as error:
        print(f"cluster {arguments.command}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
