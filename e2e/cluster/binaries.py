"""Build the cluster's programs from the Go module beside this file, once per version."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.commands import explain
from e2e.cluster.errors import CommandFailed
from e2e.cluster.settings import Settings
from e2e.cluster.steps import Steps
from e2e.cluster.toolchain import find_go, go_version

MODULE = Path(__file__).parent / "kube"
KUBERNETES_VERSION = "v1.34.4"
HELM_VERSION = "v3.19.5"

PACKAGES = {
    "kube": ".",
    "helm": "helm.sh/helm/v3/cmd/helm",
    "kube-router": "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router",
}
"""Binary name to the Go package it is built from."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """Finished binaries, named by a folder that is a hash of everything they are made from."""

    folder: Path

    @property
    def kube(self) -> Path:
        """All Kubernetes programs and etcd; the first argument says which one."""
        return self.folder / "kube"

    @property
    def helm(self) -> Path:
        return self.folder / "helm"

    @property
    def kube_router(self) -> Path:
        """Enforces NetworkPolicies."""
        return self.folder / "kube-router"

    @property
    def complete(self) -> bool:
        return all((self.folder / name).exists() for name in PACKAGES)


def source_hash(module: Path, *, go: str) -> str:
    """Hash of what decides the binaries: the module's files, the link flags, ``go version``."""
    digest = hashlib.sha256()
    parts = [(module / name).read_bytes() for name in ("go.mod", "go.sum", "main.go")]
    for part in (*parts, link_flags().encode(), go.encode()):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:16]


def link_flags() -> str:
    """Strip debug symbols and set the versions that the programs report."""
    major, minor = KUBERNETES_VERSION.lstrip("v").split(".")[:2]
    versions = {
        "k8s.io/component-base/version.gitVersion": KUBERNETES_VERSION,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "k8s.io/client-go/pkg/version.gitVersion": KUBERNETES_VERSION,
        "k8s.io/client-go/pkg/version.gitMajor": major,
        "k8s.io/client-go/pkg/version.gitMinor": minor,
        "helm.sh/helm/v3/internal/version.version": HELM_VERSION,
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor": major,
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor": minor,
    }
    return " ".join(["-s -w", *(f"-X {name}={value}" for name, value in versions.items())])


def ensure_binaries(settings: Settings, *, steps: Steps) -> Binaries:
    """The finished binaries, built now when this version is not in the cache yet (minutes)."""
    go = find_go(settings, steps=steps)
    version = source_hash(MODULE, go=go_version(go, settings=settings))
    binaries = Binaries(settings.cache / "kube" / version)
    if binaries.complete:
        return binaries
    with one_builder(settings.cache / "kube"):
        for name, package in PACKAGES.items():
            if not (binaries.folder / name).exists():
                build(name, package, into=binaries.folder, go=go, settings=settings, steps=steps)
    return binaries


@contextmanager
def one_builder(folder: Path) -> Iterator[None]:
    """Hold the cache's build lock: a second builder waits and then finds the work done."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build(
    name: str, package: str, *, into: Path, go: Path, settings: Settings, steps: Steps
) -> None:
    """Build one binary; it appears under its name only when whole."""
    into.mkdir(parents=True, exist_ok=True)
    partial, log = into / f"{name}.partial", into / f"{name}.log"
    flags = ["-v", "-trimpath", "-ldflags", link_flags(), "-o", str(partial)]
    argv = [str(go), "build", *flags, package]
    with steps.step(f"build {name} from source (kept in the cache)", lambda: count_lines(log)):
        status = compile_into_log(argv, log=log, settings=settings)
    if status != 0:
        raise CommandFailed(explain([*argv[:2], package], status, log.read_text()))
    shutil.move(partial, into / name)


def compile_into_log(argv: Sequence[str], *, log: Path, settings: Settings) -> int:
    """Run the Go compiler; its output (one line per package) goes to ``log``."""
    environment = {**settings.environment, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    with log.open("w") as output:
        return subprocess.run(
            argv, cwd=MODULE, env=environment, stdout=output, stderr=output, check=False
        ).returncode


def count_lines(log: Path) -> str:
    """Progress in words."""
    return f"{len(log.read_text().splitlines())} packages compiled" if log.exists() else "starting"
