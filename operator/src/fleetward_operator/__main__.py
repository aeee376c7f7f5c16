"""`fleetward-operator`: reads the environment, runs until told to stop or the lease is lost."""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from fleetward_api.early_stop import end_on_sigterm
from fleetward_api.logs import log_without_content
from fleetward_operator.settings import SettingsError, read_settings


def main() -> None:
    """Entry point of the console script."""
    end_on_sigterm()
    log_without_content()
    # kopf tells every event that it sees; we tell what we do about them.
    logging.getLogger("kopf").setLevel(logging.WARNING)
    try:
        settings = read_settings(os.environ)
    except SettingsError as fault:
        print(f"fleetward-operator: {fault}", file=sys.stderr)
        raise SystemExit(2) from fault
    # Here: kopf and the Kubernetes client take a second to import.
    from fleetward_operator.program import run  # noqa: PLC0415

    raise SystemExit(asyncio.run(run(settings)))


if __name__ == "__main__":
    main()
