"""Times `make up` from nothing, again, after `make down`, and a redeploy, in a fresh clone."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from e2e.figures.record import record

_ROOT = Path(__file__).resolve().parents[2]


def measure_up() -> int:
    """Record the five set-up figures; returns 0, or the status of the first command that failed.

    The clone, the caches of every tool we use and the cluster's images start empty in a temporary
    folder. Debian packages that are already installed stay installed: that part of a first run is
    not in the figure.
    """
    _run("make", "down", folder=_ROOT)
    with tempfile.TemporaryDirectory(
        prefix="fleetward-up-", dir=os.environ.get("TMPDIR")
    ) as scratch:
        clone = Path(scratch) / "fleetward"
        cache = Path(scratch) / "cache"
        environment = {
            **os.environ,
            "FLEETWARD_CACHE": str(cache),
            "GOCACHE": str(cache / "go-build"),
            "GOMODCACHE": str(cache / "go-mod"),
            "GOFLAGS": "-modcacherw",
        }
        try:
            _run("git", "clone", "-q", str(_ROOT), str(clone), folder=Path(scratch))
            _timed("up-cold-seconds", "make", "up", folder=clone, environment=environment)
            _timed("up-again-seconds", "make", "up", folder=clone, environment=environment)
            _change_one_line(clone)
            _timed("redeploy-seconds", "make", "redeploy", folder=clone, environment=environment)
            _run("make", "down", folder=clone, environment=environment)
            record("down-leftovers", _leftovers(clone, environment))
            _timed("up-after-down-seconds", "make", "up", folder=clone, environment=environment)
        except subprocess.CalledProcessError as failed:
            print(f"error: {' '.join(failed.cmd)} ended with {failed.returncode}", file=sys.stderr)
            return failed.returncode
        finally:
            subprocess.run(["make", "down"], cwd=clone, env=environment, check=False)
    return 0


def _run(*command: str, folder: Path, environment: dict[str, str] | None = None) -> None:
    subprocess.run(command, cwd=folder, env=environment, check=True)


def _timed(name: str, *command: str, folder: Path, environment: dict[str, str]) -> None:
    started = time.monotonic()
    _run(*command, folder=folder, environment=environment)
    record(name, round(time.monotonic() - started, 1), f"{os.cpu_count()} cores")


def _change_one_line(clone: Path) -> None:
    """A harmless edit of our Python code, so that a redeploy has something to bring."""
    target = clone / "operator/src/fleetward_gateway/__init__.py"
    target.write_text(target.read_text() + "# One line more.\n")


def _leftovers(clone: Path, environment: dict[str, str]) -> int:
    listing = subprocess.run(
        [".venv/bin/python", "-m", "e2e.cluster", "leftovers"],
        cwd=clone,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    print(listing.stdout, end="")
    if listing.returncode == 0:
        return 0
    return max(1, len([line for line in listing.stdout.splitlines() if line.strip()]))
