"""The command line: ``fleetward-engine serve`` and ``fleetward-engine drain``."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Sequence

from fleetward_api.early_stop import end_on_sigterm
from fleetward_api.logs import log_without_content
from fleetward_engine.errors import ConfigInvalid
from fleetward_engine.server.drain_command import DrainFailed, drain
from fleetward_engine.server.termination import write_termination
from fleetward_engine.settings import parse_arguments, serve_settings

EXIT_USAGE = 64


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    end_on_sigterm()
    arguments = parse_arguments(sys.argv[1:] if argv is None else argv)
    log_without_content()
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
        settings = serve_settings(arguments, os.environ)
        # Here: what serving needs takes a second to import, and a drain has no use for it.
        from fleetward_engine.server.serve_command import serve  # noqa: PLC0415

        return serve(settings)
    except DrainFailed as fault:
        print(f"fleetward-engine: {fault}", file=sys.stderr)
        return 1
    except ConfigInvalid as fault:
        print(f"fleetward-engine: {fault}", file=sys.stderr)
        if arguments.command == "serve":
            write_termination(arguments.termination_log, str(fault))
        return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
