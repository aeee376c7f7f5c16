"""One call's way out of the engine: outputs arrive in batches, the handler awaits them."""

from __future__ import annotations

import asyncio
from collections import deque

from fleetward_engine.outputs import RequestOutput
from fleetward_engine.server.errors import ApiError


class Generation:
    """The outputs of a call's requests, one a choice; lives on the event loop's thread.

    It ends when all of them have. An `ApiError` in place of outputs ends it at once: one was
    refused at submit, or the engine failed.
    """

    __slots__ = ("_changed", "_error", "_left", "_outputs", "request_ids")

    def __init__(self, *request_ids: str) -> None:
        self.request_ids = request_ids
        self._left = set(request_ids)
        self._outputs: deque[RequestOutput] = deque()
        self._error: ApiError | None = None
        self._changed = asyncio.Event()

    @property
    def finished(self) -> bool:
        """Whether nothing more will come."""
        return not self._left

    def push(self, output: RequestOutput) -> None:
        """Add one output; ignored once its request, or the generation, has ended."""
        if output.request_id not in self._left:
            return
        self._outputs.append(output)
        if output.finish_reason is not None:
            self._left.remove(output.request_id)
        self._changed.set()

    def fail(self, error: ApiError) -> None:
        """End it with an error; outputs that came before are still delivered first."""
        if self.finished:
            return
        self._error = error
        self._left.clear()
        self._changed.set()

    async def next_outputs(self) -> list[RequestOutput]:
        """All outputs that have arrived, at least one; an empty list after the last.

        Raises:
            ApiError: a request was refused or the engine failed.
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
