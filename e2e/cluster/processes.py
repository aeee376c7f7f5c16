"""Long-running programs: start, find again, wait until healthy, stop in order.

A started program is known by a record file (process id, start time, boot id, command line), so
that another run finds it again, and so that a recycled process id is never taken for it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from e2e.cluster.errors import ProcessFailed

POLL_SECONDS = 0.03
RESTART_PATIENCE_SECONDS = 2.0
"""The API server waits for its watchers to leave, and nobody tells them to: they reconnect."""
ROTATE_LOG_BYTES = 20_000_000
LAST_LINES = 15


@dataclass(frozen=True, slots=True)
class Program:
    """A program to keep running.

    ``healthy`` answers at once whether it serves; ``extra_environment`` is added to the table's.
    """

    name: str
    argv: tuple[str, ...]
    healthy: Callable[[], bool]
    extra_environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """Which process a record file speaks of."""

    pid: int
    started: int
    boot: str
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """The programs whose records lie in ``pids`` and whose output goes to ``logs``."""

    pids: Path
    logs: Path
    environment: Mapping[str, str]
    children: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def find(self, name: str) -> Record | None:
        """The live process recorded under ``name``."""
        record = read_record(self.pids / f"{name}.json")
        if record is None or not self._alive(record):
            return None
        return record

    def ensure(self, program: Program) -> bool:
        """Start ``program`` unless it runs with this very command line; True when started."""
        record = self.find(program.name)
        if record and record.argv == program.argv:
            return False
        if record:
            self.stop(program.name, patience_seconds=RESTART_PATIENCE_SECONDS)
        self._start(program)
        return True

    def wait_healthy(self, program: Program, *, seconds: float = 90.0) -> None:
        """Return when ``program`` serves; :class:`ProcessFailed` when it died or never does."""
        deadline = time.monotonic() + seconds
        while not program.healthy():
            if self.find(program.name) is None:
                raise ProcessFailed(f"{program.name} died at start; {self._last_words(program)}")
            if time.monotonic() > deadline:
                words = self._last_words(program)
                raise ProcessFailed(f"{program.name} not healthy after {seconds:.0f} s; {words}")
            time.sleep(POLL_SECONDS)

    def stop(self, name: str, *, patience_seconds: float = 10.0) -> bool:
        """Ask the process to end, insist after ``patience_seconds``, wait until it is gone.

        False when there was none. The record file is removed either way.
        """
        record = self.find(name)
        if record:
            end(record.pid, alive=lambda: self._alive(record), patience_seconds=patience_seconds)
        (self.pids / f"{name}.json").unlink(missing_ok=True)
        return record is not None

    def names(self) -> list[str]:
        """Names with a record file, whether their process lives or not."""
        return sorted(file.stem for file in self.pids.glob("*.json"))

    def _start(self, program: Program) -> None:
        self.pids.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        log = self.logs / f"{program.name}.log"
        if log.exists() and log.stat().st_size > ROTATE_LOG_BYTES:
            log.rename(log.with_suffix(".log.1"))
        with log.open("ab") as output:
            child = self._spawn(program, output)
        self.children[child.pid] = child
        write_record(self.pids / f"{program.name}.json", observe(child.pid, argv=program.argv))

    def _spawn(self, program: Program, output: IO[bytes]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                program.argv,
                env={**self.environment, **dict(program.extra_environment)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise ProcessFailed(f"{program.argv[0]} is not installed ({error})") from error

    def _alive(self, record: Record) -> bool:
        if record.boot == boot_id() and record.started == start_time(record.pid):
            return True
        child = self.children.get(record.pid)
        if child is not None and start_time(record.pid) is None:
            child.wait()
            self.children.pop(record.pid, None)
        return False

    def _last_words(self, program: Program) -> str:
        log = self.logs / f"{program.name}.log"
        lines = log.read_text(errors="replace").splitlines()[-LAST_LINES:] if log.exists() else []
        return "\n".join([f"the end of {log}:", *(f"    {line[:300]}" for line in lines)])


def end(pid: int, *, alive: Callable[[], bool], patience_seconds: float) -> None:
    """SIGTERM, then SIGKILL when patience runs out; returns when the process is gone."""
    deadline = time.monotonic() + patience_seconds
    send(pid, signal.SIGTERM)
    while alive():
        if time.monotonic() > deadline:
            send(pid, signal.SIGKILL)
        time.sleep(POLL_SECONDS)


def send(pid: int, number: signal.Signals) -> None:
    """Signal a process that may be gone already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of ``pid``; None when it is gone or only a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name (second field, in parentheses) may hold spaces: count from its closing one.
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


def boot_id() -> str:
    """Changes with every boot: process ids and start times mean nothing across it."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def observe(pid: int, *, argv: tuple[str, ...]) -> Record:
    """The record of a process just started (start time -1 when it died at once)."""
    started = start_time(pid)
    return Record(pid=pid, started=-1 if started is None else started, boot=boot_id(), argv=argv)


def write_record(file: Path, record: Record) -> None:
    """Write whole or not at all."""
    partial = file.with_suffix(".partial")
    fields = {"pid": record.pid, "started": record.started, "boot": record.boot}
    partial.write_text(json.dumps({**fields, "argv": list(record.argv)}))
    partial.rename(file)


def read_record(file: Path) -> Record | None:
    """None where there is no file, or where a crash left half of one."""
    try:
        data = json.loads(file.read_text())
        return Record(
            pid=int(data["pid"]),
            started=int(data["started"]),
            boot=str(data["boot"]),
            argv=tuple(map(str, data["argv"])),
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
