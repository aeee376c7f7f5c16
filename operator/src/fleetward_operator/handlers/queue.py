"""A queue of keys: each waits once, is worked on by one worker at a time, and can come later."""

from __future__ import annotations

import asyncio
from collections import deque


class KeyQueue:
    """Keys to work on, in the order they came.

    A key added while it waits is the same work; one added while it is worked on comes again
    afterwards, so nothing that happened meanwhile is lost.
    """

    def __init__(self) -> None:
        self._waiting: deque[str] = deque()
        self._dirty: set[str] = set()
        self._working: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._takers: deque[asyncio.Future[None]] = deque()

    @property
    def depth(self) -> int:
        """Keys that wait now; those for later are not counted."""
        return len(self._waiting)

    def add(self, key: str) -> None:
        """Work on a key as soon as a worker is free."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._working:
            self._waiting.append(key)
            self._wake()

    def add_later(self, key: str, delay_s: float) -> None:
        """Work on a key after a delay, unless it comes earlier; the soonest delay wins."""
        loop = asyncio.get_running_loop()
        known = self._timers.get(key)
        if known is not None and known.when() <= loop.time() + delay_s:
            return
        if known is not None:
            known.cancel()
        self._timers[key] = loop.call_later(delay_s, self.add, key)

    async def take(self) -> str:
        """The next key; pair it with `done`."""
        while not self._waiting:
            taker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            finally:
                if taker in self._takers:
                    self._takers.remove(taker)
        key = self._waiting.popleft()
        self._dirty.discard(key)
        self._working.add(key)
        return key

    def done(self, key: str) -> None:
        """A worker has finished with a key."""
        self._working.discard(key)
        if key in self._dirty:
            self._waiting.append(key)
            self._wake()

    def _wake(self) -> None:
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return
