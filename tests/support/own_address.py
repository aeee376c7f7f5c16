"""Where this machine is reached from elsewhere."""

from __future__ import annotations

import socket
from ipaddress import ip_address

import psutil


def own_address() -> str:
    """An address of this machine that is no loopback: the API server takes none in a slice."""
    found = [
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family == socket.AF_INET and not ip_address(entry.address).is_loopback
    ]
    assert found, "this machine has no IPv4 address but loopback"
    return found[0]
