"""The local cluster as a test sees it: kubectl with the local admin's kubeconfig, and no other."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Manifest = dict[str, Any]


class KubectlFailed(Exception):
    """kubectl ended with an error; the message is what it printed."""


class NeverHappened(AssertionError):
    """Something awaited did not come to pass in time."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A handle on the local cluster; `program` is the command that runs kubectl."""

    program: tuple[str, ...]
    kubeconfig: Path
    audit_log: Path

    def run(self, *arguments: str, stdin: str | None = None, timeout: float = 120) -> str:
        """Run kubectl; returns its output, raises `KubectlFailed` with its words."""
        done = subprocess.run(
            [*self.program, "--kubeconfig", str(self.kubeconfig), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        if done.returncode != 0:
            raise KubectlFailed(f"kubectl {' '.join(arguments[:4])}: {done.stderr.strip()}")
        return done.stdout

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start kubectl in the background; the caller ends it."""
        command = [*self.program, "--kubeconfig", str(self.kubeconfig), *arguments]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def apply(self, *manifests: Manifest) -> None:
        """Apply manifests server-side, in order, as a person with kubectl would."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
        self.run(
            "apply",
            "--server-side",
            "--force-conflicts",
            "--validate=strict",
            "-f",
            "-",
            stdin=text,
        )

    def get(self, kind: str, name: str, *, namespace: str | None = None) -> Manifest:
        """One object; raises `KubectlFailed` when it is not there."""
        scope = ("-n", namespace) if namespace else ()
        found: Manifest = json.loads(self.run("get", kind, name, *scope, "-o", "json"))
        return found

    def find(self, kind: str, *, namespace: str | None = None, labels: str = "") -> list[Manifest]:
        """All objects of a kind, in one namespace or in all."""
        scope = ("-n", namespace) if namespace else ("-A",)
        chosen = ("-l", labels) if labels else ()
        listed: Manifest = json.loads(self.run("get", kind, *scope, *chosen, "-o", "json"))
        return list(listed["items"])

    def exists(self, kind: str, name: str, *, namespace: str | None = None) -> bool:
        """Whether an object is there."""
        scope = ("-n", namespace) if namespace else ()
        return bool(self.run("get", kind, name, *scope, "--ignore-not-found", "-o", "name").strip())

    def delete(self, kind: str, name: str, *, namespace: str | None = None) -> None:
        """Ask for an object's deletion without waiting; one that is not there is fine."""
        scope = ("-n", namespace) if namespace else ()
        self.run("delete", kind, name, *scope, "--ignore-not-found", "--wait=false")


def eventually(
    question: Callable[[], object], *, what: str, within: float = 60, every: float = 0.25
) -> None:
    """Ask until the answer is truthy; `KubectlFailed` counts as not yet."""
    deadline = time.monotonic() + within
    last: object = None
    while time.monotonic() < deadline:
        try:
            answer = question()
            if answer:
                return
            last = answer
        except KubectlFailed as failed:
            last = failed
        time.sleep(every)
    raise NeverHappened(f"{what}: not within {within:g} s; last seen: {last!r}")


def condition(manifest: Manifest, kind: str) -> Manifest:
    """The condition of type `kind`, or an empty one."""
    conditions: Iterable[Manifest] = manifest.get("status", {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == kind), {})
