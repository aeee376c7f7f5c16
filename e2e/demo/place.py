"""Where the demo finds its programs and keeps its files."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.binaries import ensure_binaries
from e2e.cluster.commands import run
from e2e.cluster.errors import ClusterError
from e2e.cluster.paths import Paths, cluster_paths
from e2e.cluster.settings import Settings, read_settings
from e2e.cluster.steps import Steps

RELEASE_NAMESPACE = "fleetward-system"
KEY_NAMESPACE = "fleetward-keys"
GATEWAY_PORT = 30080
GATEWAY_URL = f"http://127.0.0.1:{GATEWAY_PORT}"


class DemoError(ClusterError):
    """A part of the story is not as it should be."""


@dataclass(frozen=True, slots=True)
class Place:
    """A running cluster, as commands reach it: this checkout's own, or an existing one.

    ``existing``: the present context of the caller's kubeconfig is meant, and no other.
    """

    paths: Paths
    settings: Settings
    steps: Steps
    gateway_url: str = GATEWAY_URL
    existing: bool = False

    @property
    def kubeconfig(self) -> Path | None:
        """The local cluster's; None goes where the environment leads."""
        return None if self.existing else self.paths.admin_kubeconfig

    @property
    def environment(self) -> Mapping[str, str]:
        """Leads kubectl, helm and our command line to that cluster and to no other."""
        if self.kubeconfig is None:
            return self.settings.environment
        return {**self.settings.environment, "KUBECONFIG": str(self.kubeconfig)}

    @property
    def env_file(self) -> Path:
        """What a shell sources to talk to the demo."""
        return self.paths.checkout / ".local" / ("existing.env" if self.existing else "env")

    @property
    def kubectl_program(self) -> str:
        """The local cluster's kubectl; on an existing one, the caller's."""
        return self._installed("kubectl") if self.existing else str(self.paths.bin / "kubectl")

    @property
    def helm_program(self) -> str:
        """Our helm; on an existing cluster, the caller's."""
        if self.existing:
            return self._installed("helm")
        return str(ensure_binaries(self.settings, steps=self.steps).helm)

    @property
    def examples(self) -> Path:
        return self.paths.checkout / "examples" / "quickstart"

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl and return what it printed."""
        return run([self.kubectl_program, *words], environment=self.environment, stdin=stdin)

    def helm(self, *words: str) -> str:
        """Run helm and return what it printed."""
        return run([self.helm_program, *words], environment=self.environment)

    def show(self, argv: Sequence[str], *, shown_as: str) -> int:
        """Run a command before the reader's eyes, under the line that they would type."""
        self.steps.tell(f"\n  $ {shown_as}")
        return subprocess.run(argv, env=dict(self.environment), check=False).returncode

    def _installed(self, program: str) -> str:
        found = shutil.which(program, path=self.settings.environment["PATH"])
        if found is None:
            raise DemoError(f"{program} is not on PATH: install it and try again")
        return found


@contextmanager
def one_at_a_time(place: Place) -> Iterator[None]:
    """Hold the demo of this checkout; waits, and says so, while another run holds it."""
    file = place.paths.checkout / ".local" / "demo.lock"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            place.steps.tell("          another run of the demo is under way: waiting for its end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def find_place(*, steps: Steps, environ: Mapping[str, str] | None = None) -> Place:
    """This checkout's cluster; nothing is started or asked."""
    settings = read_settings(environ)
    return Place(paths=cluster_paths(settings), settings=settings, steps=steps)
