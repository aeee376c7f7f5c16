"""`python -m e2e.chaos run [--only NAME …] [--fresh] | table | steps`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

from rich.console import Console

from e2e.chaos.progress import Progress, state_of_the_code
from e2e.chaos.report import build_verdicts
from e2e.chaos.scale import seed
from e2e.chaos.steps import STEPS, Step
from e2e.figures.record import recall
from e2e.figures.registry import FIGURES


def _run_step(step: Step) -> bool:
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
        *("--timeout", str(step.limit_s), *step.tests),
    ]
    environment = {**os.environ, "FLEETWARD_FULL": "1", "FLEETWARD_SEED": str(seed())}
    try:
        code = subprocess.run(
            command, check=False, env=environment, timeout=step.limit_s
        ).returncode
    except subprocess.TimeoutExpired:
        print(f"chaos: {step.name} ran past its {step.limit_s} s", file=sys.stderr)
        return False
    return code == 0


def _run(only: list[str], *, fresh: bool) -> int:
    unknown = set(only) - {step.name for step in STEPS}
    if unknown:
        print(f"no such step: {', '.join(sorted(unknown))}; see `steps`", file=sys.stderr)
        return 2
    progress = Progress.of(state_of_the_code(), seed())
    if fresh:
        progress.forget()
    failed: list[str] = []
    for step in STEPS:
        if only and step.name not in only:
            continue
        if step.name in progress.passed():
            print(f"chaos: {step.name} passed before on this commit with seed {seed()}")
            continue
        print(f"chaos: {step.name}, at most {step.limit_s} s", flush=True)
        started = time.monotonic()
        if _run_step(step):
            progress.add(step.name)
        else:
            failed.append(step.name)
        print(f"chaos: {step.name} took {time.monotonic() - started:.0f} s", flush=True)
    code = _table()
    for name in failed:
        print(f"chaos: {name} failed; again with `make chaos ONLY={name}`", file=sys.stderr)
    return 1 if failed else code


def _table() -> int:
    verdicts = build_verdicts(FIGURES, recall)
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(verdicts.table)
    return 1 if verdicts.failed else 0


def _steps() -> int:
    for step in STEPS:
        print(f"{step.name:<24} at most {step.limit_s:>5} s  {' '.join(step.tests)}")
    return 0


def main(arguments: list[str]) -> int:
    """Run one subcommand; returns the process's exit status."""
    parser = argparse.ArgumentParser(prog="python -m e2e.chaos")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--only", action="append", default=[])
    run.add_argument("--fresh", action="store_true")
    commands.add_parser("table")
    commands.add_parser("steps")
    options = parser.parse_args(arguments)
    match options.command:
        case "run":
            return _run(options.only, fresh=options.fresh)
        case "table":
            return _table()
        case _:
            return _steps()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
