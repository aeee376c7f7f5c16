"""What this gateway knows of each engine by itself: requests in flight, recent failures."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

SUSPECT_S = 5.0
"""How long an engine that refused a connection is passed over while another is ready."""


class EngineLoad:
    """Counts of requests in flight and the end of each engine's suspicion.

    A dead pod stays in the EndpointSlices for a while, has nothing in flight, and would so draw
    every request to itself: suspicion keeps it out of the choice.
    """

    def __init__(self) -> None:
        self._in_flight: dict[str, int] = {}
        self._suspect_until: dict[str, float] = {}

    @property
    def in_flight(self) -> Mapping[str, int]:
        """Requests by endpoint uid; absent means none."""
        return MappingProxyType(self._in_flight)

    def suspects(self, now: float) -> frozenset[str]:
        """The endpoints that failed lately."""
        if not self._suspect_until:
            return frozenset()
        for uid in [uid for uid, until in self._suspect_until.items() if until <= now]:
            del self._suspect_until[uid]
        return frozenset(self._suspect_until)

    def begin(self, uid: str) -> None:
        """A request goes to the endpoint; pair with `end`."""
        self._in_flight[uid] = self._in_flight.get(uid, 0) + 1

    def end(self, uid: str) -> None:
        """The request has left it, in whatever way."""
        left = self._in_flight[uid] - 1
        if left:
            self._in_flight[uid] = left
        else:
            del self._in_flight[uid]

    def suspect(self, uid: str, now: float) -> None:
        """The endpoint refused a connection."""
        self._suspect_until[uid] = now + SUSPECT_S

    def trust(self, uid: str) -> None:
        """The endpoint has answered."""
        if self._suspect_until:
            self._suspect_until.pop(uid, None)
