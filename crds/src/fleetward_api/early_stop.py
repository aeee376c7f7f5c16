"""SIGTERM, from a program's first moment until it takes the signal over.

The kernel drops a SIGTERM that process 1 of a container has no handler for. A pod deleted while its
program still imports its modules would live on until the kubelet's SIGKILL, minutes later.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

EXIT_STOPPED = 128 + signal.SIGTERM


def end_on_sigterm() -> None:
    """End this process at once on SIGTERM, with exit code 143, while it has nothing to finish.

    For the first line of a program, before its long imports, on the main thread. The program's own
    handler replaces this one.
    """
    signal.signal(signal.SIGTERM, _end)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(EXIT_STOPPED)
