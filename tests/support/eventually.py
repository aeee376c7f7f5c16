"""Wait for a condition instead of sleeping for a guessed time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def eventually(condition: Callable[[], bool], *, within_s: float = 20.0) -> None:
    """Return once `condition` holds.

    Raises:
        TimeoutError: it did not hold in time; generous, so that only a hang can reach it.
    """
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - any state may be asked for, not only events
            await asyncio.sleep(0.005)
