"""Ports are given once, are free, and are none that the kernel gives to connections."""

from __future__ import annotations

import socket
from pathlib import Path

from e2e.cluster.ports import free_ports


def test_many_ports_are_all_different_free_and_below_those_of_connections() -> None:
    ports = free_ports(2000)
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert len(set(ports)) == 2000
    assert all(port < lowest for port in ports)


def test_a_port_that_somebody_listens_on_is_not_given() -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.3", free_ports(1)[0]))
        busy.listen()
        assert busy.getsockname()[1] not in free_ports(500)
