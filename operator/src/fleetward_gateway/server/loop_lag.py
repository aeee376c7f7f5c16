"""How long the event loop, and so every stream, was held up."""

from __future__ import annotations

import asyncio
from typing import Final

TICK_S: Final = 0.1


class LoopLag:
    """The longest delay of a timer since it was last asked for; `run()` never returns."""

    def __init__(self) -> None:
        self._longest_s = 0.0

    async def run(self) -> None:
        """Measure until cancelled, ten times a second."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + TICK_S
            await asyncio.sleep(TICK_S)
            self._longest_s = max(self._longest_s, loop.time() - due)

    def take(self) -> float:
        """The longest delay in seconds; the next answer starts from nothing."""
        longest, self._longest_s = self._longest_s, 0.0
        return longest
