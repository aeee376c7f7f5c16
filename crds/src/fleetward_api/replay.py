"""Accept each request id once, with bounded memory and a clock that may jump."""

from __future__ import annotations

import hashlib
import heapq
import math
import secrets
from array import array
from typing import Final

DEFAULT_CAPACITY: Final = 1 << 20
"""Over the 16 minutes for which an identity token can be valid: 1092 requests a second at one
engine while a gateway's clock lags by all that is allowed. About 100 bytes each."""

_SHARDS: Final = 64


class ReplayGuard:
    """Remembers ids until their token can no longer be valid.

    What is forgotten, for age or for room, leaves a mark: an id whose token expires no later than
    a forgotten one is refused, since nobody can tell whether it was used. So a clock that jumps
    ahead and back opens no window, and a flood costs old tokens their welcome, never memory.

    An id is remembered as 64 bits of a keyed digest, and forgotten by the second in which its token
    expires: two ids could be taken for one, which refuses a request, but not once in a lifetime.

    Args:
        window_s: seconds after its expiry for which a token is still taken (the leeway).
        capacity: ids remembered at most.
    """

    __slots__ = (
        *("_capacity", "_forgotten_until", "_held", "_key"),
        *("_remembered", "_seconds", "_seen", "_window_s"),
    )

    def __init__(self, window_s: float, *, capacity: int = DEFAULT_CAPACITY) -> None:
        if capacity < 1 or not window_s >= 0:
            raise ValueError("a replay guard needs a window of 0 s or more and room for one id")
        self._window_s = window_s
        self._capacity = capacity
        self._key = secrets.token_bytes(16)
        # In shards: a set grows by copying, and that of all at once would be felt.
        self._seen: tuple[set[int], ...] = tuple(set() for _ in range(_SHARDS))
        self._held: dict[int, array[int]] = {}
        self._seconds: list[int] = []
        self._remembered = 0
        self._forgotten_until = -math.inf

    @property
    def remembered(self) -> int:
        """Ids held now; at most the capacity."""
        # Not __len__: an empty guard must not be false, or `guard or other` would lose it.
        return self._remembered

    def accept(self, jti: str, expires_at: float, now: float) -> bool:
        """Return True the first time an id is shown while its token is in time, else False."""
        if not (math.isfinite(expires_at) and now <= expires_at + self._window_s):
            return False
        raw = hashlib.blake2b(jti.encode(), key=self._key, digest_size=8).digest()
        mark = int.from_bytes(raw)
        shard = self._seen[mark % _SHARDS]
        if expires_at <= self._forgotten_until or mark in shard:
            return False
        shard.add(mark)
        self._remembered += 1
        second = math.ceil(expires_at)
        if second not in self._held:
            self._held[second] = array("Q")
            heapq.heappush(self._seconds, second)
        self._held[second].append(mark)
        self._forget(now)
        return True

    def _forget(self, now: float) -> None:
        while self._seconds:
            second = self._seconds[0]
            if second + self._window_s >= now and self._remembered <= self._capacity:
                return
            heapq.heappop(self._seconds)
            marks = self._held.pop(second)
            self._remembered -= len(marks)
            for mark in marks:
                self._seen[mark % _SHARDS].discard(mark)
            self._forgotten_until = max(self._forgotten_until, second)
