"""The operator's program on a machine whose wall clock is wrong, with a lease of other lengths.

Only for tests: `python -m tests.support.leadership_replica SKEW DURATION DEADLINE RETRY` (seconds).
The clock is bent before anything of the product is imported.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import logging
import os
import sys
import time
from typing import Any


class _Bent(type):
    """Makes `isinstance` take every `datetime` for one of the bent class."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _DATETIME)


_DATETIME = dt.datetime


def bend(skew_s: float) -> None:
    """Move this process's wall clock; steady clocks stay as they are."""
    told, told_ns, shift = time.time, time.time_ns, dt.timedelta(seconds=skew_s)

    class BentDatetime(_DATETIME, metaclass=_Bent):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Any:
            return _DATETIME.now(tz) + shift

        @classmethod
        def utcnow(cls) -> Any:
            return _DATETIME.now(dt.UTC).replace(tzinfo=None) + shift

    time.time = lambda: told() + skew_s
    time.time_ns = lambda: told_ns() + int(skew_s * 1e9)
    dt.datetime = BentDatetime  # type: ignore[misc]


def main(skew_s: float, duration_s: float, deadline_s: float, retry_s: float) -> None:
    """Run one replica until it is told to stop."""
    bend(skew_s)
    from fleetward_operator.program import run  # noqa: PLC0415 - after the clock is bent
    from fleetward_operator.settings import Timings, read_settings  # noqa: PLC0415 - as above

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    timings = Timings(
        lease_duration=duration_s, lease_renew_deadline=deadline_s, lease_retry=retry_s
    )
    settings = dataclasses.replace(read_settings(os.environ), timings=timings)
    raise SystemExit(asyncio.run(run(settings)))


if __name__ == "__main__":
    main(*(float(text) for text in sys.argv[1:]))
