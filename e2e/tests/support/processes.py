"""Processes of this cluster's pods, found on the node, to kill, pause and go on."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def processes_of(pod: str, program: str) -> list[int]:
    """Processes that carry `POD_NAME=<pod>` and have `program` in their command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if f"POD_NAME={pod}".encode() in environment and program.encode() in command:
            found.append(int(folder.name))
    return found


def send(pod: str, program: str, what: signal.Signals) -> int:
    """Send a signal to a pod's processes; how many got it."""
    reached = 0
    for pid in processes_of(pod, program):
        try:
            os.kill(pid, what)
        except ProcessLookupError:
            continue
        reached += 1
    return reached
