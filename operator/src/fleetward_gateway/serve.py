"""Serving as a process: the gateway runs until a signal, then drains."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping

import uvloop

from fleetward_api.logs import log_uncaught_faults, tell_stray_fault
from fleetward_api.memory_guard import refuse_dumps
from fleetward_gateway.program import running_gateway
from fleetward_gateway.settings import Settings


def serve(settings: Settings, environ: Mapping[str, str]) -> None:
    """Serve until SIGTERM or SIGINT, then drain."""
    log_uncaught_faults()
    refuse_dumps()
    uvloop.run(_serve(settings, environ))


async def _serve(settings: Settings, environ: Mapping[str, str]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(tell_stray_fault)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with running_gateway(settings, environ) as gateway:
        await stop.wait()
        await gateway.drain()
