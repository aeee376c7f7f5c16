"""Calls that the API server has asked not to see again for a while."""

from __future__ import annotations

from collections.abc import Callable

from fleetward_kube.errors import KubeError

LONGEST_S = 300.0
"""No longer wish is obeyed: nobody who means well asks a controller to be blind for longer."""

_KEPT = 1000


class Deferrals:
    """Remembers each `Retry-After` by method and path, so that no caller can come too early.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[tuple[str, str], float] = {}

    def note(self, method: str, path: str, header: str | None) -> float:
        """Keep what an answer's `Retry-After` asks; the seconds, 0 where it asks nothing.

        Dates are not understood: the API server sends seconds.
        """
        text = (header or "").strip()
        if not (text.isascii() and text.isdecimal()):
            return 0.0
        seconds = min(LONGEST_S, float(text[:9]))
        self._forget_old()
        self._until[method, path] = self._clock() + seconds
        return seconds

    def check(self, method: str, path: str) -> None:
        """Raise `KubeError` (429) for a call that comes too early."""
        left = self._until.get((method, path), 0.0) - self._clock()
        if left > 0:
            raise KubeError(
                429,
                "TooManyRequests",
                f"{method} {path} is not sent: the API server asked to wait {left:.1f} s more",
                retry_after_s=left,
            )

    def _forget_old(self) -> None:
        if len(self._until) >= _KEPT:
            now = self._clock()
            self._until = {call: until for call, until in self._until.items() if until > now}
