"""No copy of this process's memory on a disk: it holds prompts, KV and keys."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from typing import Final

_PR_SET_DUMPABLE: Final = 4


def refuse_dumps() -> None:
    """Have a crash leave no core dump, and others of this user id not read this memory.

    The limit alone is not asked where the node pipes dumps to a program (core(5)), so the process
    also says that it may not be dumped at all (prctl(2)); only a root of the node can then attach
    to it. On systems other than Linux, which are laptops, the limit is all there is.

    Raises:
        OSError: the kernel refused, which no kernel that we know does.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        if prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
