"""One request's way out of the engine: outputs arrive in batches, the handler awaits them."""

from __future__ import annotations

import asyncio
from collections import deque

from fleetward_engine.outputs import RequestOutput
from fleetward_engine.server.errors import ApiError


class Generation:
    """The outputs of one request, in order; lives on the event loop's thread.

    An `ApiError` in place of outputs ends it: refused at submit, or the engine failed.
    """

    __slots__ = ("_changed", "_error", "_outputs", "finished", "request_id")

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.finished = False
        self._outputs: deque[RequestOutput] = deque()
        self._error: ApiError | None = None
        self._changed = asyncio.Event()

    def push(self, output: RequestOutput) -> None:
        """Add one output; ignored once the generation has ended."""
        if self.finished:
            return
        self._outputs.append(output)
        self.finished = output.finish_reason is not None
        self._changed.set()

    def fail(self, error: ApiError) -> None:
        """End it with an error; outputs that came before are still delivered first."""
        if self.finished:
            return
        self._error = error
        self.finished = True
        self._changed.set()

    async def next_outputs(self) -> list[RequestOutput]:
        """All outputs that have arrived, at least one; an empty list after the last.

        Raises:
            ApiError: the request was refused or the engine failed.
        """
        while not self._outputs:
            if self._error is not None:
                raise self._error
            if self.finished:
                return []
            self._changed.clear()
            await self._changed.wait()
        ready = list(self._outputs)
        self._outputs.clear()
        return ready
