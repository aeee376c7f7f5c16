"""`fleetward-operator`: reads the environment, runs until told to stop or the lease is lost."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Any, cast

import kopf

from fleetward_operator.handlers.app import App
from fleetward_operator.handlers.kopf_registry import build_registry, build_settings
from fleetward_operator.settings import Settings, SettingsError, read_settings


async def run(settings: Settings) -> int:
    """Run one replica; its exit code."""
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


def main() -> None:
    """Entry point of the console script."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # kopf tells every event that it sees; we tell what we do about them.
    logging.getLogger("kopf").setLevel(logging.WARNING)
    try:
        settings = read_settings(os.environ)
    except SettingsError as fault:
        print(f"fleetward-operator: {fault}", file=sys.stderr)
        raise SystemExit(2) from fault
    raise SystemExit(asyncio.run(run(settings)))


if __name__ == "__main__":
    main()
