"""Operator processes forked from one that has imported everything: a start takes milliseconds.

Run as a program it is that process: one JSON order a line on standard input, one JSON answer a line
on standard output. Each fork is a process of its own, so a kill -9 is a real one.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

REPOSITORY = Path(__file__).resolve().parents[2]
_PRELOADED = ("fleetward_operator.program", "kubernetes.aio.client", "kubernetes.aio.config")
_PR_SET_PDEATHSIG = 1


class Forks:
    """The parent of operator processes; use it as a context manager.

    Everything it started ends with it. `kill` returns only when the process is no more, so that
    nothing which is sent afterwards can be its.
    """

    def __init__(self) -> None:
        self._nursery: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        rooms = (REPOSITORY, REPOSITORY / "crds/src", REPOSITORY / "operator/src")
        self._nursery = subprocess.Popen(
            [sys.executable, "-W", "error::RuntimeWarning", "-m", "tests.support.operator_forks"],
            cwd=REPOSITORY,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(map(str, rooms))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            self._ask({"do": "hello"})
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._nursery is not None:
            self._nursery.communicate()
            self._nursery = None

    def start(self, environment: Mapping[str, str], *, log: Path) -> int:
        """Start an operator; its process id. What it says is appended to `log`."""
        order = {"do": "start", "environment": dict(environment), "log": str(log)}
        return int(self._ask(order)["pid"])

    def kill(self, pid: int) -> int:
        """Kill -9 and wait for the end; the exit status, negative for a signal."""
        return int(self._ask({"do": "kill", "pid": pid})["status"])

    def ended(self, pid: int) -> bool:
        """Whether a process has ended by itself."""
        return bool(self._ask({"do": "look", "pid": pid})["ended"])

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        nursery = self._nursery
        if nursery is None or nursery.stdin is None or nursery.stdout is None:
            raise RuntimeError("Forks is used outside its `with` block")
        nursery.stdin.write(json.dumps(order).encode() + b"\n")
        nursery.stdin.flush()
        line = nursery.stdout.readline()
        if not line:
            # What it died of is on its standard error, which is ours.
            raise RuntimeError("the parent of the operator processes has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _serve() -> None:
    for name in _PRELOADED:
        importlib.import_module(name)
    ended: dict[int, int] = {}
    alive: set[int] = set()
    for line in sys.stdin.buffer:
        order = json.loads(line)
        pid = order.get("pid", 0)
        match order["do"]:
            case "start":
                pid = os.fork()
                if pid == 0:
                    _become_operator(order["environment"], order["log"])
                alive.add(pid)
                answer: dict[str, Any] = {"pid": pid}
            case "look":
                _reap(alive, ended)
                answer = {"ended": pid in ended}
            case "kill":
                _reap(alive, ended)
                if pid in alive:
                    os.kill(pid, signal.SIGKILL)
                    ended[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    alive.discard(pid)
                answer = {"status": ended[pid]}
            case _:
                answer = {}
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _reap(alive: set[int], ended: dict[int, int]) -> None:
    for pid in list(alive):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            ended[pid] = os.waitstatus_to_exitcode(status)
            alive.discard(pid)


def _become_operator(environment: dict[str, str], log: str) -> None:
    """In the child: the operator's own entry point, with its own environment and log."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDONLY) if stream == 0 else sink, stream)
    os.environ.clear()
    os.environ.update(environment)
    main = importlib.import_module("fleetward_operator.__main__").main
    code = 1
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        # Not by way of the parent's frames: what follows there is not this process's business.
        if error := sys.exception():
            traceback.print_exception(error)
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
