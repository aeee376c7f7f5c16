"""Stop strings that never show: text is held back while it could still become one."""

from __future__ import annotations


class StopScanner:
    """Passes text through until any stop string is complete.

    The result does not depend on how the text is cut into deltas: the stop string that is
    complete first wins, the longest of those that end together, and everything before it is
    passed on.
    """

    def __init__(self, stop: tuple[str, ...]) -> None:
        self._stop = stop
        self._held = ""
        self.stopped = False

    def feed(self, delta: str) -> str:
        """Take a delta; returns the text that may be shown now."""
        if self.stopped:
            return ""
        text = self._held + delta
        matches = [
            (start + len(stop), start)
            for stop in self._stop
            if (start := text.find(stop)) >= 0
        ]  # fmt: skip
        if matches:
            self.stopped = True
            self._held = ""
            return text[: min(matches)[1]]
        keep = self._hold(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """The held text, once no more will come."""
        held, self._held = self._held, ""
        return held

    def _hold(self, text: str) -> int:
        """Length of the longest tail that is a proper beginning of a stop string."""
        longest = max((len(stop) for stop in self._stop), default=1) - 1
        for length in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stop):
                return length
        return 0
