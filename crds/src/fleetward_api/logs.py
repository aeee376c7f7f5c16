"""Logs without content: what every program of ours sets up before it serves.

No log line carries what a client sent, but for a request id that it chose. Our own lines are
written so; this sees to the faults of libraries and to those that nobody handled.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from types import TracebackType
from typing import Any, Final

from fleetward_api.fault_words import trail_of

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

logger = logging.getLogger(__name__)


class WithoutContent(logging.Formatter):
    """Prints where a fault came from, and its words only where they quote nobody."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and the traceback if there is one."""
        # A record keeps the traceback as the first handler that met it wrote it.
        record.exc_text = None
        return super().format(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the library's name
        """The traceback of a record."""
        return "" if ei[1] is None else trail_of(ei[1])


def log_without_content(level: int | str = logging.INFO) -> None:
    """Log to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(WithoutContent(FORMAT))
    logging.basicConfig(level=level, handlers=[handler])


def log_uncaught_faults() -> None:
    """Log what ends a thread or the process, and what is raised where nothing can catch it.

    For a process of its own: left alone, Python prints such faults with all their words.
    """
    sys.excepthook = _on_uncaught
    sys.unraisablehook = lambda told: _tell_stray(told.exc_value)
    threading.excepthook = lambda told: _tell_stray(told.exc_value)


def tell_stray_fault(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """For `set_exception_handler`: the loop's own would print the arguments of callbacks."""
    fault = context.get("exception")
    if fault is None:
        logger.error("%s", context["message"])
    else:
        _tell_stray(fault)


def _on_uncaught(
    _kind: type[BaseException], fault: BaseException, _trail: TracebackType | None
) -> None:
    if not isinstance(fault, KeyboardInterrupt):
        logger.critical("ended by a fault", exc_info=fault)


def _tell_stray(fault: BaseException | None) -> None:
    # A thread may end itself by SystemExit; that is no fault.
    if fault is not None and not isinstance(fault, SystemExit):
        logger.error("a fault that nobody handled", exc_info=fault)
