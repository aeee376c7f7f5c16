"""How long a client is willing to wait for its whole answer."""

from __future__ import annotations

from typing import Final

from fleetward_api.openai import CODE_DEADLINE_EXCEEDED, CODE_INVALID_VALUE
from fleetward_gateway.problem import Problem

HEADER: Final = "Fleetward-Deadline-Ms"
MAX_MS: Final = 86_400_000
_DIGITS: Final = len(str(MAX_MS))


def read_deadline(value: bytes, *, began: float) -> float | None:
    """The moment by which the answer must be complete, on the clock that `began` was read from.

    Args:
        value: of the header, empty when absent.
        began: when the request's head came, seconds.

    Raises:
        Problem: 400 for anything but a whole number of milliseconds up to a day.
    """
    if not value:
        return None
    milliseconds = int(value) if value.isdigit() and len(value) <= _DIGITS else 0
    if not 1 <= milliseconds <= MAX_MS:
        raise Problem(
            400,
            CODE_INVALID_VALUE,
            f"The header {HEADER} takes whole milliseconds from 1 to {MAX_MS}.",
            param=HEADER,
        )
    return began + milliseconds / 1000


def remaining_ms(deadline: float | None, *, now: float) -> int:
    """What is left for the engine, at least 1; 0 for a request without a deadline.

    Raises:
        Problem: 504, nothing is left.
    """
    if deadline is None:
        return 0
    left = int((deadline - now) * 1000)
    if left < 1:
        raise Problem(
            504,
            CODE_DEADLINE_EXCEEDED,
            f"The request's deadline ({HEADER}) passed before an engine had it.",
            headers=((b"x-should-retry", b"false"),),
        )
    return left
