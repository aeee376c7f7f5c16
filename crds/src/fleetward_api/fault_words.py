"""What may be told of a fault to people other than the caller: its kind, its place, seldom words.

The words of most errors quote the value that was wrong (`KeyError: 'some of a prompt'`), and those
of validation and parsing quote their input. Logs, termination messages, statuses and Events are
read by others than whose prompt or key it was. So only the words of faults that speak of the
machine are told, and those that we wrote ourselves without quoting a request.
"""

from __future__ import annotations

import traceback
from typing import Final

from fleetward_api.errors import FleetwardError

MAX_CHARS: Final = 1024
_MAX_CHAIN: Final = 16
_DEVICE: Final = "CUDA error"
_DEVICE_MODULE: Final = "torch"


def words_of(fault: BaseException) -> str:
    """Its message in one line; empty where it could quote a request or a secret."""
    if isinstance(fault, FleetwardError):
        told = not fault.quotes_request
    elif isinstance(fault, RuntimeError):
        # Torch speaks of a device's faults by types of its own, or in words that begin so.
        told = type(fault).__module__ == _DEVICE_MODULE or str(fault).startswith(_DEVICE)
    else:
        told = isinstance(fault, OSError | MemoryError)
    return " ".join(str(fault).split())[:MAX_CHARS] if told else ""


def place_of(fault: BaseException) -> str:
    """Where it was raised, as `module:line in function`; empty before it was."""
    frames = list(traceback.walk_tb(fault.__traceback__))
    if not frames:
        return ""
    frame, line = frames[-1]
    return f"{frame.f_globals.get('__name__', '?')}:{line} in {frame.f_code.co_name}"


def sentence_of(fault: BaseException) -> str:
    """One line on a fault: our own words as they are, else its kind with its words or its place."""
    words, kind = words_of(fault), type(fault).__name__
    if words:
        return words if isinstance(fault, FleetwardError) else f"{kind}: {words}"
    place = place_of(fault)
    return f"{kind} at {place}" if place else kind


def trail_of(fault: BaseException) -> str:
    """The traceback of a fault and of those behind it, oldest first.

    As Python prints it, but with only such words as `words_of` tells.
    """
    chain: list[BaseException] = []
    after: BaseException | None = fault
    while after is not None and after not in chain and len(chain) < _MAX_CHAIN:
        chain.append(after)
        after = after.__cause__ or (None if after.__suppress_context__ else after.__context__)
    return "\nwhich led to:\n".join(_one(each) for each in reversed(chain))


def _one(fault: BaseException) -> str:
    words = words_of(fault)
    last = f"{type(fault).__qualname__}: {words}" if words else type(fault).__qualname__
    frames = "".join(traceback.format_tb(fault.__traceback__))
    text = f"Traceback (most recent call last):\n{frames}{last}"
    if isinstance(fault, BaseExceptionGroup):
        within = (trail_of(each) for each in fault.exceptions[:_MAX_CHAIN])
        text = "\nand within it:\n".join((text, *within))
    return text
