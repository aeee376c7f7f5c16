"""containerd with folders, socket and network of its own, beside any other on the machine."""

from __future__ import annotations

import shutil
from pathlib import Path

from e2e.cluster.addresses import CNI_NETWORK, POD_BRIDGE, POD_RANGE
from e2e.cluster.commands import run, succeeds
from e2e.cluster.configfile import write_config, write_json_config
from e2e.cluster.debian import CNI_PLUGINS
from e2e.cluster.errors import ClusterError
from e2e.cluster.images import ctr
from e2e.cluster.paths import Paths
from e2e.cluster.processes import Program
from e2e.cluster.settings import Settings

KIND = 'labels."io.cri-containerd.kind"'
REMOVE_ATTEMPTS = 5
CRI = 'plugins."io.containerd.grpc.v1.cri"'


def build_config(paths: Paths, *, sandbox_image: str) -> str:
    """The config.toml.

    ``restrict_oom_score_adj``: where the machine itself lacks CAP_SYS_RESOURCE (many VMs and
    containers do) no sandbox could start, since its score may not be lowered. ``runc`` by name:
    crun refuses machines with both cgroup versions mounted.
    """
    return f"""\
version = 2
root = "{paths.containerd_root}"
state = "{paths.containerd_state}"
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = "{paths.containerd_socket}"

[{CRI}]
  sandbox_image = "{sandbox_image}"
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"

[{CRI}.cni]
  bin_dir = "{CNI_PLUGINS}"
  conf_dir = "{paths.config / "cni"}"

[{CRI}.containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"

[{CRI}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[{CRI}.containerd.runtimes.runc.options]
  BinaryName = "runc"
  Root = "{paths.run / "runc"}"
  SystemdCgroup = false
"""


def build_network(paths: Paths) -> dict[str, object]:
    """The pods' network: a bridge, addresses from the pod range, masquerading towards outside."""
    addresses = {
        "type": "host-local",
        "dataDir": str(paths.run / "pod-addresses"),
        "ranges": [[{"subnet": POD_RANGE}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {
        "type": "bridge",
        "bridge": POD_BRIDGE,
        "isGateway": True,
        "ipMasq": True,
        # A pod reaches its own service address: the packet leaves and comes back by one port.
        "hairpinMode": True,
        "ipam": addresses,
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": CNI_NETWORK, "plugins": [bridge, portmap]}


def containerd(paths: Paths, *, sandbox_image: str) -> Program:
    """Write the configuration and describe the program."""
    write_json_config(paths.config / "cni", "fleetward.conflist", build_network(paths))
    content = build_config(paths, sandbox_image=sandbox_image)
    config = write_config(paths.config, "containerd.toml", content)
    argv = ("containerd", "--config", str(config), "--log-level", "warn")
    return Program("containerd", argv, healthy=lambda: answers(paths))


def answers(paths: Paths) -> bool:
    """Whether it answers a request, not only listens."""
    if not paths.containerd_socket.exists():
        return False
    argv = ["ctr", "-a", str(paths.containerd_socket), "--timeout", "2s", "version"]
    return succeeds(argv, environment={"PATH": "/usr/local/bin:/usr/bin:/bin"})


def containers(paths: Paths, *, settings: Settings) -> list[str]:
    """Ids of all containers that containerd knows in Kubernetes' namespace, running or not."""
    argv = [*ctr(settings, paths=paths), "containers", "ls", "-q"]
    return run(argv, environment=settings.environment).split()


def remove_containers(paths: Paths, *, settings: Settings) -> None:
    """Kill and remove every container; images stay.

    A pod's containers go before its sandbox, whose shim they share. A container may also end by
    itself while this runs, which containerd reports as a failure to remove it: look again.
    """
    start = ctr(settings, paths=paths)
    inner = f'{KIND}=="container"'
    for _ in range(REMOVE_ATTEMPTS):
        every = containers(paths, settings=settings)
        if not every:
            return
        listed = [*start, "containers", "ls", "-q", inner]
        first = run(listed, environment=settings.environment).split()
        for ids in (first, [each for each in every if each not in first]):
            if ids:
                succeeds([*start, "tasks", "rm", "-f", *ids], environment=settings.environment)
                succeeds([*start, "containers", "rm", *ids], environment=settings.environment)
    left = containers(paths, settings=settings)
    if left:
        raise ClusterError(f"containerd keeps {len(left)} containers: {' '.join(left)[:200]}")


def forget_sandboxes(paths: Paths) -> None:
    """Remove what the CRI plugin keeps on disk about pods that are no more."""
    plugin: Path = paths.containerd_root / "io.containerd.grpc.v1.cri"
    for name in ("sandboxes", "containers"):
        shutil.rmtree(plugin / name, ignore_errors=True)
