"""The chart as Helm renders it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.binaries import ensure_binaries
from e2e.cluster.settings import read_settings
from e2e.cluster.steps import Steps

CHECKOUT = Path(__file__).resolve().parents[2]
CHART = CHECKOUT / "charts" / "fleetward"
RELEASE_NAMESPACE = "fleetward-system"

Manifest = dict[str, Any]


class ChartRefused(Exception):
    """Helm refused the values; its words."""


@dataclass(frozen=True, slots=True)
class Chart:
    """The chart under test and the helm to render it with."""

    helm: Path

    def render(self, values: Mapping[str, Any] | None = None, *words: str) -> list[Manifest]:
        """Every object that an installation with these values makes, tests included.

        Raises:
            ChartRefused: the values don't meet the schema, or a template fails.
        """
        argv = [str(self.helm), "template", "fleetward", str(CHART), "-n", RELEASE_NAMESPACE]
        done = subprocess.run(
            [*argv, "-f", "-", *words],
            input=yaml.safe_dump(dict(values or {})),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise ChartRefused(done.stderr)
        return [document for document in yaml.safe_load_all(done.stdout) if document]

    def lint(self) -> str:
        """What ``helm lint --strict`` says; empty where it has nothing against the chart."""
        argv = [str(self.helm), "lint", "--strict", "--quiet", str(CHART)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return done.stdout if done.returncode else ""


def find_chart() -> Chart:
    """The repository's chart; helm is built into the cache where it is not there yet."""
    return Chart(ensure_binaries(read_settings(), steps=Steps()).helm)


def of_kind(manifests: list[Manifest], *kinds: str) -> list[Manifest]:
    """The manifests of these kinds."""
    return [manifest for manifest in manifests if manifest["kind"] in kinds]


def named(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    """The one manifest of this kind and name."""
    (found,) = [each for each in of_kind(manifests, kind) if each["metadata"]["name"] == name]
    return found


def pod_specs(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Name and pod spec of everything that runs pods."""
    for manifest in manifests:
        if manifest["kind"] == "Pod":
            yield manifest["metadata"]["name"], manifest["spec"]
        elif manifest["kind"] in {"Deployment", "StatefulSet", "DaemonSet", "Job"}:
            yield manifest["metadata"]["name"], manifest["spec"]["template"]["spec"]
