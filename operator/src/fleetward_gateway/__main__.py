"""`fleetward-gateway`: serve until SIGTERM, then drain."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping

import uvloop

from fleetward_api.errors import FleetwardError
from fleetward_gateway.program import running_gateway
from fleetward_gateway.settings import Settings, read_settings


def main() -> None:
    """Run the gateway; exits with 1 and one sentence when it cannot start."""
    try:
        settings = read_settings(os.environ)
        logging.basicConfig(
            level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
        )
        uvloop.run(_serve(settings, os.environ))
    except FleetwardError as error:
        sys.exit(f"fleetward-gateway: {error.message}")
    except OSError as error:
        sys.exit(f"fleetward-gateway: cannot listen or write: {error}")


async def _serve(settings: Settings, environ: Mapping[str, str]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with running_gateway(settings, environ) as gateway:
        await stop.wait()
        await gateway.drain()


if __name__ == "__main__":
    main()
