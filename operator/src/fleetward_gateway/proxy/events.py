"""Server-sent events, as far as a relay must know them: where one ends."""

from __future__ import annotations

from typing import Final

import orjson

from fleetward_gateway.problem import Problem

MAX_TAIL: Final = 1 << 20
"""An unfinished event above this is passed on as it comes."""

_DONE: Final = b"data: [DONE]"
_ERROR: Final = b'data: {"error":'
_KEPT: Final = 4096
"""What is remembered of the end of a stream; its last event is `[DONE]` or starts within this."""


class EventCutter:
    """Lets whole events through at once and keeps back an unfinished one.

    A client cannot use half an event anyway, and with it held back an error can still be put
    between two events when the engine dies.
    """

    __slots__ = ("_end", "_tail")

    def __init__(self) -> None:
        self._tail = b""
        self._end = b""

    @property
    def between_events(self) -> bool:
        """True when what was let through ends with an event, or is nothing."""
        return not self._end or self._end.endswith((b"\n\n", b"\r\n\r\n"))

    @property
    def ended(self) -> bool:
        """True when the last event let through ends a stream: `[DONE]` or an error."""
        lines = self._end.split(b"\n")
        last = next((line.rstrip(b"\r") for line in reversed(lines) if line.strip()), b"")
        if not self.between_events:
            return False
        return last == _DONE or last.startswith(_ERROR)

    def feed(self, chunk: bytes) -> bytes:
        """What may go out now, empty when `chunk` finished no event."""
        data = self._tail + chunk if self._tail else chunk
        end = _last_end(data)
        if len(data) - end > MAX_TAIL:
            end = len(data)
        self._tail = data[end:]
        out = data[:end] if end != len(data) else data
        if out:
            self._end = (self._end + out)[-_KEPT:] if len(out) < _KEPT else out[-_KEPT:]
        return out

    def last(self, problem: Problem) -> bytes:
        """What is still to be sent of a stream that is over.

        Nothing after one that ended in order; after any other, however politely the connection
        was closed, `problem` as an event. Half an event that was kept back is dropped.
        """
        if self.ended:
            return b""
        return (b"" if self.between_events else b"\n\n") + error_event(problem)


def error_event(problem: Problem) -> bytes:
    """The event that ends a stream which cannot go on."""
    return b"data: " + orjson.dumps(problem.body()) + b"\n\n"


def _last_end(data: bytes) -> int:
    bare = data.rfind(b"\n\n")
    carriage = data.rfind(b"\r\n\r\n")
    return max(bare + 2 if bare >= 0 else 0, carriage + 4 if carriage >= 0 else 0)
