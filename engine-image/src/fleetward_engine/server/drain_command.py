"""``fleetward-engine drain``: the pod's preStop hook.

Signals the serving process of this container to turn its readiness off, then waits until nothing
runs any more, so that the kubelet's SIGTERM finds an idle engine.
"""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from fleetward_engine.server.drain import LAME_DUCK_S

POLL_S = 0.25


class DrainFailed(Exception):
    """There is no engine here to drain, or it did not finish in time."""


def drain(
    pid_file: Path,
    *,
    port: int,
    timeout_s: float,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    """Drain the engine whose pid is in ``pid_file`` and wait for its streams.

    Raises:
        DrainFailed: no engine runs here, or streams were still running after ``timeout_s``.
    """
    try:
        os.kill(int(pid_file.read_text("ascii")), signal.SIGUSR1)
    except (OSError, ValueError) as fault:
        raise DrainFailed(f"no engine runs here ({pid_file}): {fault}") from fault
    until = clock() + timeout_s
    sleep(min(LAME_DUCK_S, timeout_s))
    while clock() < until:
        unfinished = _unfinished(port)
        if unfinished == 0:
            return
        sleep(POLL_S)
    raise DrainFailed(f"requests were still running after {timeout_s:.0f} s")


def _unfinished(port: int) -> int:
    """Requests still running; 0 when the engine has gone."""
    try:
        url = f"http://127.0.0.1:{port}/load"
        with urllib.request.urlopen(url, timeout=2) as answer:
            return int(json.load(answer)["unfinished"])
    except urllib.error.URLError as fault:
        return 0 if isinstance(fault.reason, ConnectionRefusedError) else 1
    except OSError:
        return 1
