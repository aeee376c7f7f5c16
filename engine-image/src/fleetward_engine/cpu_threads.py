"""How many threads a process in a container can really use."""

from __future__ import annotations

import os
from pathlib import Path

CPU_MAX = Path("/sys/fs/cgroup/cpu.max")
"""The CPU quota of this container's control group (version 2): `QUOTA PERIOD` or `max PERIOD`."""


def usable_cpus() -> int:
    """CPUs this process may run on, within its container's quota."""
    text = CPU_MAX.read_text("ascii") if CPU_MAX.is_file() else "max"
    return threads_for(cpus=len(os.sched_getaffinity(0)), cpu_max=text)


def threads_for(*, cpus: int, cpu_max: str) -> int:
    """Threads for so many CPUs under a quota such as `150000 100000` (rounded up, at least 1).

    More threads than the quota would spend it on waiting for each other and then be paused
    together, in the middle of a step.
    """
    quota, _, period = cpu_max.strip().partition(" ")
    if not (quota.isdecimal() and period.isdecimal() and int(period) > 0):
        return cpus
    return max(1, min(cpus, -(-int(quota) // int(period))))
