"""Ports to listen on later, on any address of this machine."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 11_000
"""Below it lie the ports of a kubelet and its neighbours."""

_dice = random.SystemRandom()
_given: set[int] = set()


def free_port() -> int:
    """A TCP port that nobody listens on, not given before in this process.

    The kernel gives none of these to a connection going out, which might take one between this
    look and the listening.
    """
    below = int(_RANGE.read_text().split()[0])
    while True:
        port = _dice.randrange(_LOWEST, below)
        if port not in _given and _is_free(port):
            _given.add(port)
            return port


def free_ports(count: int) -> list[int]:
    """So many different ones."""
    return [free_port() for _ in range(count)]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True
