"""Accept each request id once, with bounded memory and a clock that may jump."""

from __future__ import annotations

import heapq
import math
from typing import Final

DEFAULT_CAPACITY: Final = 262_144


class ReplayGuard:
    """Remembers ids until their token can no longer be valid.

    What is forgotten, for age or for room, leaves a mark: an id whose token expires no later than
    a forgotten one is refused, since nobody can tell whether it was used. So a clock that jumps
    ahead and back opens no window, and a flood costs old tokens their welcome, never memory.

    Args:
        window_s: seconds after its expiry for which a token is still taken (the leeway).
        capacity: ids remembered at most.
    """

    __slots__ = ("_capacity", "_forgotten_until", "_heap", "_seen", "_window_s")

    def __init__(self, window_s: float, *, capacity: int = DEFAULT_CAPACITY) -> None:
        if capacity < 1 or not window_s >= 0:
            raise ValueError("a replay guard needs a window of 0 s or more and room for one id")
        self._window_s = window_s
        self._capacity = capacity
        self._seen: set[str] = set()
        self._heap: list[tuple[float, str]] = []
        self._forgotten_until = -math.inf

    @property
    def remembered(self) -> int:
        """Ids held now; at most the capacity."""
        # Not __len__: an empty guard must not be false, or `guard or other` would lose it.
        return len(self._seen)

    def accept(self, jti: str, expires_at: float, now: float) -> bool:
        """Return True the first time an id is shown while its token is in time, else False."""
        if not (math.isfinite(expires_at) and now <= expires_at + self._window_s):
            return False
        if expires_at <= self._forgotten_until or jti in self._seen:
            return False
        self._seen.add(jti)
        heapq.heappush(self._heap, (expires_at, jti))
        self._forget(now)
        return True

    def _forget(self, now: float) -> None:
        while self._heap:
            expires_at, jti = self._heap[0]
            if expires_at + self._window_s >= now and len(self._seen) <= self._capacity:
                return
            heapq.heappop(self._heap)
            self._seen.discard(jti)
            self._forgotten_until = max(self._forgotten_until, expires_at)
