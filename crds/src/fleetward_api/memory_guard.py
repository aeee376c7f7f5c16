"""No copy of this process's memory on a disk, and no leavings in what it has freed.

It holds prompts, KV and keys.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from typing import Final

_PR_SET_DUMPABLE: Final = 4
_M_PERTURB: Final = -6
_FREED: Final = 0xA5
_LARGEST_CACHED: Final = 1032
_CACHED_OF_A_SIZE: Final = 7
"""glibc's tcache: bytes of the largest chunks that it keeps, and how many of each size."""


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


def overwrite_freed_memory() -> None:
    """Have the allocator overwrite memory when it is freed (mallopt(3), M_PERTURB).

    So copies that computing makes of KV, token ids and texts are gone with the work itself. Not
    overwritten are objects of Python's own pools (up to 512 bytes), and the last few small chunks
    that each thread freed, until `rinse_small_chunks`. Costs a fill of each chunk, a few percent
    of a step on a CPU. Where the C library is another than glibc this does nothing.

    Raises:
        OSError: glibc refused, which no version that we know does.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and mallopt(_M_PERTURB, _FREED) != 1:
        raise OSError("mallopt(M_PERTURB) was refused")


def rinse_small_chunks() -> None:
    """Overwrite the small chunks that this thread freed last, which its cache keeps as they are.

    Takes all that the cache can hold of each size, and gives them back overwritten.
    """
    libc = ctypes.CDLL(None)
    malloc, free = libc.malloc, libc.free
    malloc.restype, malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    free.restype, free.argtypes = None, (ctypes.c_void_p,)
    taken = []
    for size in range(24, _LARGEST_CACHED + 1, 16):
        for _ in range(_CACHED_OF_A_SIZE):
            chunk = malloc(size)
            if chunk:
                ctypes.memset(chunk, 0, size)
                taken.append(chunk)
    for chunk in taken:
        free(chunk)
