"""One replica of the operator: kopf's process around the app, until it is told to stop."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import kopf

from fleetward_api.logs import log_uncaught_faults, tell_stray_fault
from fleetward_api.memory_guard import refuse_dumps
from fleetward_operator.handlers.app import App
from fleetward_operator.handlers.kopf_registry import build_registry, build_settings
from fleetward_operator.settings import Settings


async def run(settings: Settings) -> int:
    """Run one replica; its exit code."""
    log_uncaught_faults()
    refuse_dumps()
    asyncio.get_running_loop().set_exception_handler(tell_stray_fault)
    app = App(settings)
    await kopf.operator(
        registry=build_registry(app),
        settings=build_settings(),
        # Told, or kopf would ask the image for the user's name, and a uid may have none.
        # (Any: the parameter's own type is private to kopf.)
        identity=cast("Any", settings.identity.pod_name),
        standalone=True,
        clusterwide=True,
        stop_flag=app.stopped,
    )
    return app.exit_code
