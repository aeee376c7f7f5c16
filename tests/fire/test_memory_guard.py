"""A process of ours leaves no core dump, whatever the node would do with one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fleetward_api.memory_guard import refuse_dumps

# Asked of a process of its own: a limit that was lowered cannot be raised again.
_ASKS = """
import ctypes, resource, sys
if sys.argv[1] == "guarded":
    from fleetward_api.memory_guard import refuse_dumps
    refuse_dumps()
PR_GET_DUMPABLE = 3
print(resource.getrlimit(resource.RLIMIT_CORE)[0], ctypes.CDLL(None).prctl(PR_GET_DUMPABLE))
"""


def asked(how: str) -> list[str]:
    """The largest core dump in bytes, and whether the kernel may dump it at all."""
    command = [sys.executable, "-c", _ASKS, how]
    path = {"PYTHONPATH": ":".join(sys.path)}
    return subprocess.check_output(command, text=True, env=path).split()


def test_a_guarded_process_cannot_be_dumped() -> None:
    assert asked("plain")[1] == "1"
    assert asked("guarded") == ["0", "0"]


@pytest.mark.parametrize(
    "program",
    [
        "engine-image/src/fleetward_engine/server/serve_command.py",
        "operator/src/fleetward_gateway/serve.py",
        "operator/src/fleetward_operator/program.py",
    ],
)
def test_every_program_asks_before_it_serves(program: str) -> None:
    lines = Path(program).read_text().splitlines()
    assert f"    {refuse_dumps.__name__}()" in lines
    assert "    log_uncaught_faults()" in lines
