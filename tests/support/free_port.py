"""A port to listen on later, on any loopback address."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_000
_dice = random.SystemRandom()


def free_port() -> int:
    """A port that was free a moment ago, and that the kernel gives no connection going out.

    One of those might be taken between this look and the listening.
    """
    below = int(_RANGE.read_text().split()[0])
    while True:
        port = _dice.randrange(_LOWEST, below)
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
            return port
