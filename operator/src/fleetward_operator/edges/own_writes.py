"""What we wrote and the watch has not told us yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

KubeObject = dict[str, Any]

FORGET_AFTER_S = 15.0


class OwnWrites:
    """Answers of our own writes, shown instead of an older watched copy.

    Without it a pass that runs before the watch has caught up would write the same thing again.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._written: dict[tuple[str, str], tuple[KubeObject, float]] = {}

    def remember(self, kind: str, key: str, written: KubeObject) -> None:
        """Keep an answer until the watch has caught up with it."""
        self._written[kind, key] = (written, self._clock())

    def saw_deletion(self, kind: str, key: str, uid: str) -> None:
        """The watch told that this incarnation of an object is gone; a later one is kept."""
        found = self._written.get((kind, key))
        if found is not None and found[0]["metadata"].get("uid") == uid:
            del self._written[kind, key]

    def newest(self, kind: str, key: str, watched: KubeObject | None) -> KubeObject | None:
        """The watched copy, or our own newer one."""
        found = self._written.get((kind, key))
        if found is None:
            return watched
        written, at = found
        if watched is None:
            if self._clock() - at < FORGET_AFTER_S:
                return written
        elif _version(written) > _version(watched):
            return written
        del self._written[kind, key]
        return watched


def _version(item: KubeObject) -> int:
    # Comparable within one kind: KEP-5504 promises what etcd has always given.
    return int(item["metadata"].get("resourceVersion") or 0)
