"""`fleetward-gateway`: serve until SIGTERM, then drain."""

from __future__ import annotations

import os
import sys

from fleetward_api.early_stop import end_on_sigterm
from fleetward_api.errors import FleetwardError
from fleetward_api.logs import log_without_content
from fleetward_gateway.settings import read_settings


def main() -> None:
    """Run the gateway; exits with 1 and one sentence when it cannot start."""
    end_on_sigterm()
    try:
        settings = read_settings(os.environ)
        log_without_content(settings.log_level)
        # Here: the server and the Kubernetes client take a second to import.
        from fleetward_gateway.serve import serve  # noqa: PLC0415

        serve(settings, os.environ)
    except FleetwardError as error:
        sys.exit(f"fleetward-gateway: {error.message}")
    except OSError as error:
        sys.exit(f"fleetward-gateway: cannot listen or write: {error}")


if __name__ == "__main__":
    main()
