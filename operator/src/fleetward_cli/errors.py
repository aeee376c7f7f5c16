"""How a command ends when it cannot do its work.

::

    FleetwardError
    └── CliError            one sentence on stderr, and the exit status in `exit_code`
"""

from __future__ import annotations

from typing import ClassVar, Final

from fleetward_api.errors import FleetwardError

FAILED: Final = 1
"""The command could not do its work: nothing is said about what it was to check."""
# 2 is what the command-line library itself ends with on wrong usage.
EVIDENCE_WRONG: Final = 3
EVIDENCE_UNPINNED: Final = 4
EVIDENCE_INCOMPLETE: Final = 5
PURGE_INCOMPLETE: Final = 5


class CliError(FleetwardError):
    """A command that cannot do its work."""

    default_reason: ClassVar[str] = "CommandFailed"
