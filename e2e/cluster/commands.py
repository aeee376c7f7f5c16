"""Run a program to its end."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from e2e.cluster.errors import CommandFailed

LAST_LINES = 15


def run(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    stdin: str | None = None,
    folder: Path | None = None,
) -> str:
    """Run ``argv`` and return what it printed on stdout; :class:`CommandFailed` tells the rest."""
    try:
        done = subprocess.run(
            argv,
            env=dict(environment),
            input=stdin,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise CommandFailed(f"{argv[0]} is not installed ({error})") from error
    if done.returncode != 0:
        raise CommandFailed(explain(argv, done.returncode, done.stderr or done.stdout))
    return done.stdout


def succeeds(argv: Sequence[str], *, environment: Mapping[str, str]) -> bool:
    """Whether ``argv`` can be run and exits with 0."""
    try:
        run(argv, environment=environment)
    except CommandFailed:
        return False
    return True


def explain(argv: Sequence[str], status: int, output: str) -> str:
    """One message for a failed command: what was run, how it ended, the end of its output."""
    lines = "\n".join(f"    {line}" for line in output.strip().splitlines()[-LAST_LINES:])
    return f"`{shlex.join(argv)[:300]}` ended with status {status}\n{lines}".rstrip()
