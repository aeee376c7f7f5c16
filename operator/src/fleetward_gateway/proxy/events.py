"""Server-sent events, as far as a relay must know them: where one ends."""

from __future__ import annotations

from typing import Final

import orjson

from fleetward_gateway.problem import Problem

MAX_TAIL: Final = 1 << 20
"""An unfinished event above this is passed on as it comes."""


class EventCutter:
    """Lets whole events through at once and keeps back an unfinished one.

    A client cannot use half an event anyway, and with it held back an error can still be put
    between two events when the engine dies.
    """

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = b""

    def feed(self, chunk: bytes) -> bytes:
        """What may go out now, empty when `chunk` finished no event."""
        data = self._tail + chunk if self._tail else chunk
        end = _last_end(data)
        if len(data) - end > MAX_TAIL:
            end = len(data)
        self._tail = data[end:]
        return data[:end] if end != len(data) else data

    def rest(self) -> bytes:
        """The unfinished event, after the stream has ended in order."""
        tail, self._tail = self._tail, b""
        return tail


def error_event(problem: Problem) -> bytes:
    """The event that ends a stream which cannot go on."""
    return b"data: " + orjson.dumps(problem.body()) + b"\n\n"


def _last_end(data: bytes) -> int:
    bare = data.rfind(b"\n\n")
    carriage = data.rfind(b"\r\n\r\n")
    return max(bare + 2 if bare >= 0 else 0, carriage + 4 if carriage >= 0 else 0)
