"""`python -m e2e.chaos run [--only NAME …] [--fresh] [--jobs N] | table | steps`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

from rich.console import Console

from e2e.chaos.progress import FOLDER, Progress, state_of_the_code
from e2e.chaos.report import build_verdicts
from e2e.chaos.scale import seed
from e2e.chaos.steps import STEPS, Step
from e2e.figures.record import recall
from e2e.figures.registry import FIGURES


def _run_step(step: Step, *, log: Path | None = None) -> bool:
    """Run one step, at most as long as it says; its output goes to `log`, else it is shown."""
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
        *("--timeout", str(step.limit_s), *step.tests),
    ]
    environment = {**os.environ, "FLEETWARD_FULL": "1", "FLEETWARD_SEED": str(seed())}
    print(f"chaos: {step.name}, at most {step.limit_s} s", flush=True)
    started = time.monotonic()
    with ExitStack() as stack:
        sink = stack.enter_context(log.open("w")) if log else None
        try:
            done = subprocess.run(
                command,
                check=False,
                env=environment,
                timeout=step.limit_s,
                stdout=sink,
                stderr=sink,
            )
            passed = done.returncode == 0
        except subprocess.TimeoutExpired:
            print(f"chaos: {step.name} ran past its {step.limit_s} s", file=sys.stderr)
            passed = False
    verdict = "passed" if passed else "failed"
    where = f"; {log}" if log else ""
    print(f"chaos: {step.name} {verdict} in {time.monotonic() - started:.0f} s{where}", flush=True)
    return passed


def _run_side_by_side(steps: list[Step], *, jobs: int) -> Iterator[tuple[Step, bool]]:
    """Steps and whether they passed, as they end; `jobs` of them at a time, each with its log."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(max_workers=jobs) as lanes:
        running = {
            lanes.submit(_run_step, step, log=FOLDER / f"{step.name}.log"): step for step in steps
        }
        for done in as_completed(running):
            yield running[done], done.result()


def _run(only: list[str], *, fresh: bool, jobs: int) -> int:
    unknown = set(only) - {step.name for step in STEPS}
    if unknown:
        print(f"no such step: {', '.join(sorted(unknown))}; see `steps`", file=sys.stderr)
        return 2
    progress = Progress.of(state_of_the_code(), seed())
    if fresh:
        progress.forget()
    wanted = [step for step in STEPS if not only or step.name in only]
    for step in wanted:
        if step.name in progress.passed():
            print(f"chaos: {step.name} passed before on this commit with seed {seed()}")
    left = [step for step in wanted if step.name not in progress.passed()]
    together = [step for step in left if step.untimed] if jobs > 1 else []
    results = chain(
        _run_side_by_side(together, jobs=jobs),
        ((step, _run_step(step)) for step in left if step not in together),
    )
    failed: list[str] = []
    for step, passed in results:
        if passed:
            progress.add(step.name)
        else:
            failed.append(step.name)
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
    run.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    commands.add_parser("table")
    commands.add_parser("steps")
    options = parser.parse_args(arguments)
    match options.command:
        case "run":
            return _run(options.only, fresh=options.fresh, jobs=options.jobs)
        case "table":
            return _table()
        case _:
            return _steps()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
