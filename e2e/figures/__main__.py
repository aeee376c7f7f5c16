"""`python -m e2e.figures print | time NAME -- COMMAND… | up`."""

from __future__ import annotations

import subprocess
import sys
import time

from rich.console import Console

from e2e.figures.record import recall, record
from e2e.figures.registry import FIGURES
from e2e.figures.report import build_report
from e2e.figures.up import measure_up


def _print() -> int:
    report = build_report(FIGURES, recall)
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(report.table)
    for name in report.missing:
        console.print(f"missing: {name}")
    for name in report.missed:
        console.print(f"missed: {name}")
    return 0 if report.ok else 1


def _time(name: str, command: list[str]) -> int:
    started = time.monotonic()
    code = subprocess.run(command, check=False).returncode
    if code == 0:
        record(name, round(time.monotonic() - started, 1), " ".join(command[-3:]))
    return code


def main(arguments: list[str]) -> int:
    """Run one subcommand; returns the process's exit status."""
    match arguments:
        case ["print"]:
            return _print()
        case ["time", name, "--", *command] if command:
            return _time(name, command)
        case ["up"]:
            return measure_up()
        case _:
            print(__doc__, file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
