"""The command line: ``fleetward-engine serve`` and ``fleetward-engine drain``."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
import uuid
from collections.abc import Sequence

from fleetward_engine.errors import ConfigInvalid
from fleetward_engine.factory import build_engine
from fleetward_engine.server.assembly import World, assemble
from fleetward_engine.server.drain_command import DrainFailed, drain
from fleetward_engine.server.process import make_last_resort, run, write_termination
from fleetward_engine.settings import ServeSettings, parse_arguments, serve_settings

EXIT_USAGE = 64


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = parse_arguments(sys.argv[1:] if argv is None else argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    # Its start and stop lines say nothing that ours do not.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    try:
        if arguments.command == "drain":
            drain(
                arguments.pid_file,
                port=arguments.port,
                timeout_s=arguments.timeout_seconds,
                clock=time.monotonic,
                sleep=time.sleep,
            )
            return 0
        return serve(serve_settings(arguments, os.environ))
    except DrainFailed as fault:
        print(f"fleetward-engine: {fault}", file=sys.stderr)
        return 1
    except ConfigInvalid as fault:
        print(f"fleetward-engine: {fault}", file=sys.stderr)
        if arguments.command == "serve":
            write_termination(arguments.termination_log, str(fault))
        return EXIT_USAGE


def serve(settings: ServeSettings) -> int:
    """Assemble and run the serving process on uvloop."""
    world = World(clock=time.monotonic, wall=time.time, new_id=lambda: uuid.uuid4().hex)

    async def life() -> int:
        assembly = assemble(settings, lambda: build_engine(settings.engine, world.clock), world)
        return await run(settings, assembly, last_resort=make_last_resort())

    import uvloop  # noqa: PLC0415 - only the real process; tests run on plain asyncio

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(life())


if __name__ == "__main__":
    sys.exit(main())
