"""How much memory this process may use: its container's limit, or all that the machine has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

CGROUP_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""The memory limit of this container's control group, versions 2 and 1; `max` is none."""
MEMINFO: Final = Path("/proc/meminfo")
OWN_STATUS: Final = Path("/proc/self/status")

_KIB: Final = 1024


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Bytes that the container may use, and what this process has of its own now (anonymous)."""

    limit: int
    in_use: int


def host_memory() -> HostMemory:
    """Ask the kernel."""
    limits = [path.read_text("ascii") for path in CGROUP_LIMITS if path.is_file()]
    meminfo, status = MEMINFO.read_text("ascii"), OWN_STATUS.read_text("ascii")
    return HostMemory(
        limit=limit_of(limits, machine=_kib_line(meminfo, "MemTotal")),
        in_use=_kib_line(status, "RssAnon"),
    )


def limit_of(limits: list[str], *, machine: int) -> int:
    """The smallest of the limits as control groups write them, and of the machine's memory."""
    written = [int(text) for text in map(str.strip, limits) if text.isdecimal()]
    return min([machine, *written])


def _kib_line(text: str, name: str) -> int:
    """Bytes in a line such as `MemTotal:   16384 kB`."""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) * _KIB
    raise OSError(f"the kernel tells no {name}")
