"""The links, routes and kernel settings that the cluster needs, and their removal."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable
from pathlib import Path

from e2e.cluster.addresses import (
    CLUSTER_RANGE,
    NODE_ADDRESS,
    POD_BRIDGE,
    POD_RANGE,
    SERVICE_BRIDGE,
    SERVICE_RANGE,
)
from e2e.cluster.before import NAMESPACES, Before, network_namespaces
from e2e.cluster.commands import run, succeeds
from e2e.cluster.errors import Occupied
from e2e.cluster.settings import Settings

OWN_LINKS = (POD_BRIDGE, SERVICE_BRIDGE, "kube-bridge", "kube-dummy-if", "kube-ipvs0")
"""Ours, and those that kube-router or kube-proxy make in some of their modes."""


def ensure_network(settings: Settings) -> None:
    """A bridge that carries the node's address and the route to the service range, and forwarding.

    Service addresses are rewritten by iptables, yet the machine's own programs need some route to
    them, or the packets never get that far.
    """
    environment = settings.environment
    if not Path("/proc/sys/net/bridge").exists():
        run(["modprobe", "br_netfilter"], environment=environment)
    for name in ("net/ipv4/ip_forward", "net/bridge/bridge-nf-call-iptables"):
        (Path("/proc/sys") / name).write_text("1")
    if SERVICE_BRIDGE not in link_names(settings):
        refuse_taken_range(observe_routes(settings))
        run(["ip", "link", "add", SERVICE_BRIDGE, "type", "bridge"], environment=environment)
    address = f"{NODE_ADDRESS}/32"
    run(["ip", "address", "replace", address, "dev", SERVICE_BRIDGE], environment=environment)
    run(["ip", "link", "set", SERVICE_BRIDGE, "up"], environment=environment)
    route = [SERVICE_RANGE, "dev", SERVICE_BRIDGE, "src", NODE_ADDRESS]
    run(["ip", "route", "replace", *route], environment=environment)


def refuse_taken_range(routes: Iterable[str]) -> None:
    """Another program on this machine may use the range, too."""
    taken = routes_within(routes)
    if taken:
        raise Occupied(
            f"the machine has routes into {CLUSTER_RANGE} already ({', '.join(taken)}); "
            "the cluster needs that range for itself: remove them first"
        )


def observe_routes(settings: Settings) -> list[str]:
    """Destinations of the main table's IPv4 routes."""
    printed = run(["ip", "-j", "-4", "route", "show"], environment=settings.environment)
    return [str(route["dst"]) for route in json.loads(printed or "[]")]


def routes_within(destinations: Iterable[str]) -> list[str]:
    """Those inside the cluster's range."""
    whole = ipaddress.ip_network(CLUSTER_RANGE)
    return [
        each
        for each in destinations
        if each != "default" and ipaddress.ip_network(each, strict=False).overlaps(whole)
    ]


def observe_links(settings: Settings) -> list[dict[str, object]]:
    """All links of the machine, as ``ip -j link`` tells them."""
    printed = run(["ip", "-j", "link", "show"], environment=settings.environment)
    links: list[dict[str, object]] = json.loads(printed)
    return links


def link_names(settings: Settings) -> list[str]:
    """Names of all links."""
    return [str(link["ifname"]) for link in observe_links(settings)]


def own_links(links: Iterable[dict[str, object]]) -> list[str]:
    """The cluster's links, pod ends first: a bridge's ports are told by their ``master``."""
    ports, bridges = [], []
    for link in links:
        if link["ifname"] in OWN_LINKS:
            bridges.append(str(link["ifname"]))
        elif link.get("master") in OWN_LINKS:
            ports.append(str(link["ifname"]))
    return ports + bridges


def remove_links(settings: Settings) -> None:
    """Remove the cluster's links; their addresses and routes go with them."""
    for name in own_links(observe_links(settings)):
        # A port may be gone by itself meanwhile: the kernel removes it with its namespace.
        succeeds(["ip", "link", "delete", name], environment=settings.environment)


def own_namespaces(before: Before, *, settings: Settings) -> list[str]:
    """Namespaces of the cluster's pods: new ones with a pod address, or with no address at all."""
    new = [name for name in network_namespaces() if name not in before.namespaces]
    return [
        name
        for name in new
        if name.startswith("cni-") and is_pod_namespace(namespace_addresses(name, settings))
    ]


def namespace_addresses(name: str, settings: Settings) -> list[str]:
    """IPv4 addresses inside a namespace, without loopback; a stale file counts as an empty one."""
    argv = ["ip", "-n", name, "-j", "-4", "address", "show", "scope", "global"]
    if not succeeds(argv, environment=settings.environment):
        return []
    links = json.loads(run(argv, environment=settings.environment) or "[]")
    infos = [info for link in links for info in link.get("addr_info", [])]
    return [str(info["local"]) for info in infos]


def is_pod_namespace(addresses: list[str]) -> bool:
    """Whether a namespace with these addresses is a pod's, or one that a pod never got to use."""
    pods = ipaddress.ip_network(POD_RANGE)
    return all(ipaddress.ip_address(address) in pods for address in addresses)


def remove_namespaces(names: Iterable[str], *, settings: Settings) -> None:
    """Unmount and remove; with its last reference a namespace loses its links."""
    for name in names:
        if not succeeds(["ip", "netns", "delete", name], environment=settings.environment):
            (NAMESPACES / name).unlink(missing_ok=True)
