"""One worker for many tenants, who take turns; those of one tenant go in order."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class LineFull(Exception):
    """As many of the tenant's wait for a turn as may."""


class FairTurns:
    """Lets one in at a time; a tenant with much to do delays another's by no more than one turn.

    Lives on one event loop. Nothing is kept of a tenant that has nobody waiting.

    Args:
        most_waiting: how many of one tenant may wait.
    """

    def __init__(self, *, most_waiting: int) -> None:
        self._most_waiting = most_waiting
        self._taken = False
        self._lines: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Have a turn for as long as the block runs.

        Raises:
            LineFull: too many of this tenant wait already.
        """
        if self._taken:
            await self._wait(tenant)
        self._taken = True
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, tenant: str) -> None:
        line = self._lines.setdefault(tenant, deque())
        if len(line) >= self._most_waiting:
            raise LineFull(tenant)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # It came as the waiter gave up: the next one must not wait for nobody.
                self._pass_on()
            elif turn in line:
                line.remove(turn)
                if not line:
                    self._lines.pop(tenant, None)
            raise

    def _pass_on(self) -> None:
        """Give the turn to the tenant whose last one is longest ago."""
        self._taken = False
        while self._lines:
            tenant, line = self._lines.popitem(last=False)
            turn = line.popleft()
            if line:
                self._lines[tenant] = line
            if not turn.done():
                self._taken = True
                turn.set_result(None)
                return
