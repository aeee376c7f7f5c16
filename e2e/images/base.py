"""The base image: a small Debian with Python, made by debootstrap.

Where no public image registry can be reached this stands in for the Dockerfiles' default base. Its
recipe's hash names it: it is made once and kept.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from e2e.cluster.commands import run
from e2e.cluster.errors import Unsupported
from e2e.cluster.steps import Steps
from e2e.images.buildah import Buildah
from e2e.images.plan import reference

SUITE = "bookworm"
PACKAGES = ("python3", "python3-venv", "ca-certificates")
EMPTIED = ("var/cache/apt", "var/lib/apt/lists", "var/log", "dev", "proc", "sys", "tmp")
REMOVED = ("usr/share/man", "usr/share/locale", "usr/share/info")
DOCKERFILE = """\
FROM scratch
COPY . /
CMD ["/bin/sh"]
"""
PROGRAMS = {"buildah": "buildah", "debootstrap": "debootstrap"}


def base_reference() -> str:
    """Changes with the recipe above and with nothing else."""
    recipe = "\n".join([SUITE, *PACKAGES, *EMPTIED, *REMOVED, DOCKERFILE])
    return reference("base", hashlib.sha256(recipe.encode()).hexdigest())


def build_base(buildah: Buildah, *, steps: Steps) -> str:
    """Make the base image unless the storage has it; returns its reference."""
    name = base_reference()
    if buildah.exists(name):
        return name
    environment = buildah.settings.machine.environment
    buildah.settings.folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=buildah.settings.folder, prefix="base-") as place,
        steps.step(f"base image: Debian {SUITE} with Python"),
    ):
        root = Path(place) / "root"
        include = f"--include={','.join(PACKAGES)}"
        run(
            ["debootstrap", "--variant=minbase", include, SUITE, str(root)], environment=environment
        )
        slim(root)
        dockerfile = Path(place) / "Dockerfile"
        dockerfile.write_text(DOCKERFILE)
        buildah.run("build", "--quiet", "--file", str(dockerfile), "--tag", name, str(root))
    return name


def slim(root: Path) -> None:
    """Drop what a container never reads; licence texts stay."""
    for name in REMOVED:
        shutil.rmtree(root / name, ignore_errors=True)
    for name in EMPTIED:
        for entry in (root / name).iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
    for file in (root / "usr/share/doc").rglob("*"):
        if file.name != "copyright" and (file.is_symlink() or file.is_file()):
            file.unlink()


def ensure_programs(path: str, *, steps: Steps) -> None:
    """Install buildah and debootstrap with apt-get where ``path`` (a PATH) has neither."""
    missing = sorted(
        package for program, package in PROGRAMS.items() if shutil.which(program, path=path) is None
    )
    if not missing:
        return
    names = " ".join(missing)
    if os.geteuid() != 0 or shutil.which("apt-get", path=path) is None:
        raise Unsupported(
            f"building images needs {names}: install them (on Debian, as root: "
            f"apt-get install {names}) and try again"
        )
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with steps.step(f"install Debian packages: {names}"):
        run(["apt-get", "update", "-qq"], environment=environment)
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
        run(install, environment=environment)
