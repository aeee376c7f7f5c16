"""SIGTERM before a program has begun to serve, as process 1 of its own process namespace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fleetward_api.early_stop import EXIT_STOPPED

# Imports take a while in a pod with little CPU; here the first slow one takes for ever.
_STUCK_IN_IMPORTS = """
import importlib, sys, time

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name in {"kopf", "numpy", "uvloop"}:
            print("importing", flush=True)
            time.sleep(60)

sys.meta_path.insert(0, Slow())
sys.exit(importlib.import_module(sys.argv.pop(1)).main())
"""
_POD = {"POD_NAME": "a", "POD_NAMESPACE": "b", "POD_UID": "c", "POD_IP": "127.0.0.1"}
_SETTINGS = {
    "FLEETWARD_KEY_NAMESPACE": "keys",
    "FLEETWARD_NAMESPACE": "b",
    "FLEETWARD_ENGINE_IMAGE": "engine:1",
}
_PROGRAMS = {
    "fleetward_engine": ["serve", "--model", "package://none", "--insecure-local"],
    "fleetward_operator": [],
    "fleetward_gateway": [],
}


@pytest.mark.parametrize("program", _PROGRAMS)
def test_a_program_that_still_imports_ends_when_told(program: str, tmp_path: Path) -> None:
    script = tmp_path / "stuck.py"
    script.write_text(_STUCK_IN_IMPORTS)
    command = [sys.executable, str(script), f"{program}.__main__", *_PROGRAMS[program]]
    child = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", *command],
        env={**os.environ, **_POD, **_SETTINGS},
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "importing\n"
            children = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text()
            os.kill(int(children), signal.SIGTERM)
            assert child.wait(timeout=10) == EXIT_STOPPED
        finally:
            child.kill()
