"""``fleetward-engine serve``: assemble the serving process and run it."""

from __future__ import annotations

import asyncio
import time
import uuid

import uvloop

from fleetward_api.logs import log_uncaught_faults, tell_stray_fault
from fleetward_api.memory_guard import overwrite_freed_memory, refuse_dumps
from fleetward_engine.factory import build_engine
from fleetward_engine.server.assembly import World, assemble
from fleetward_engine.server.process import make_last_resort, run
from fleetward_engine.settings import ServeSettings


def serve(settings: ServeSettings) -> int:
    """Assemble and run the serving process on uvloop."""
    log_uncaught_faults()
    refuse_dumps()
    overwrite_freed_memory()
    world = World(clock=time.monotonic, wall=time.time, new_id=lambda: uuid.uuid4().hex)

    async def life() -> int:
        asyncio.get_running_loop().set_exception_handler(tell_stray_fault)
        assembly = assemble(settings, lambda: build_engine(settings.engine, world.clock), world)
        return await run(settings, assembly, last_resort=make_last_resort())

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(life())
