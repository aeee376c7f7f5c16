"""Fences: from the engine's word on, a scope's older requests read and leave no cache."""

from __future__ import annotations

from collections import OrderedDict

from fleetward_api.bundle import InFlight
from fleetward_api.scope import Scope
from fleetward_engine.engine import Engine
from fleetward_engine.outputs import FenceResult
from fleetward_engine.server.service import EngineService

KEPT = 4096
_NOTHING = FenceResult(finishing=0, aborted=0)


class Fences:
    """Raises fences in the engine's thread and remembers what ran when each one fell.

    The push of a bundle raises the fence, the purge that follows reports it: so the numbers of the
    first time are kept (of the last 4096 fences), less those that a later call aborted after all.
    """

    def __init__(self, service: EngineService) -> None:
        self._service = service
        self._first: OrderedDict[tuple[Scope, int], FenceResult] = OrderedDict()

    async def fence(self, scope: Scope, floor: int, in_flight: InFlight) -> FenceResult:
        """Raise the scope's fence to ``floor``; returns once it holds.

        While the model loads there is no request to fence: the engine gets the floor first thing,
        before any request.

        Returns:
            What ran, below the floor, when this fence first fell, and what became of it.
        """

        def raise_fence(engine: Engine) -> FenceResult:
            return engine.governance.fence(scope, floor, in_flight)

        if self._service.never_ran:
            self._service.loop.post(lambda engine: _discard(raise_fence(engine)))
            result = _NOTHING
        else:
            result = await self._service.loop.call(raise_fence)
        first = self._first.get((scope, floor))
        if first is not None:
            result = _aborted_after_all(first, result.aborted)
        self._first[scope, floor] = result
        while len(self._first) > KEPT:
            self._first.popitem(last=False)
        return result


def _aborted_after_all(first: FenceResult, aborted: int) -> FenceResult:
    return FenceResult(finishing=max(0, first.finishing - aborted), aborted=first.aborted + aborted)


def _discard(_result: FenceResult) -> None:
    return None
