"""Fences: from the engine's word on, a scope's older requests read and leave no cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

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

        Returns:
            What ran, below the floor, when this fence first fell, and what became of it.
        """
        await self.raise_all([(scope, floor)], in_flight)
        return self._first[scope, floor]

    async def raise_all(self, raised: Sequence[tuple[Scope, int]], in_flight: InFlight) -> None:
        """Raise these scopes' fences together; returns once they hold.

        While the model loads there is no request to fence: the engine gets the floors first thing,
        before any request.
        """
        if not raised:
            return

        def raise_fences(engine: Engine) -> list[FenceResult]:
            return [engine.governance.fence(scope, floor, in_flight) for scope, floor in raised]

        if self._service.never_ran:
            self._service.loop.post(lambda engine: _discard(raise_fences(engine)))
            results = [_NOTHING] * len(raised)
        else:
            results = await self._service.loop.call(raise_fences)
        for fence, result in zip(raised, results, strict=True):
            first = self._first.get(fence)
            self._first[fence] = result if first is None else _after_all(first, result.aborted)
            self._first.move_to_end(fence)
        while len(self._first) > max(KEPT, len(raised)):
            self._first.popitem(last=False)


def _after_all(first: FenceResult, aborted: int) -> FenceResult:
    return FenceResult(finishing=max(0, first.finishing - aborted), aborted=first.aborted + aborted)


def _discard(_results: list[FenceResult]) -> None:
    return None
