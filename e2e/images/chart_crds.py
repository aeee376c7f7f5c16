"""Copies ``crds/*.yaml`` into the chart as templates.

As templates, because Helm installs its ``crds/`` folder once and never upgrades it; with the keep
policy, because removing a release must not remove everybody's objects with the definitions.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CRDS = "crds"
TEMPLATES = "charts/fleetward/templates/crds"
NOTICE = "{{- /* Copied from crds/ by `make generate`; change the models there. */}}\n"
SWITCH = "{{- if .Values.crds.install }}\n"
END = "{{- end }}\n"
KEEP = "  annotations:\n    helm.sh/resource-policy: keep\n"


def chart_crd(text: str) -> str:
    """One CRD's YAML as a template that renders to the same document with the keep policy.

    Raises:
        ValueError: when ``text`` has not exactly one top-level ``metadata:``, or has annotations of
            its own.
    """
    if len(re.findall(r"^metadata:$", text, flags=re.MULTILINE)) != 1:
        raise ValueError("a CRD file must hold exactly one top-level `metadata:` line")
    if re.search(r"^  annotations:", text, flags=re.MULTILINE):
        raise ValueError("annotations of the CRD's own would clash with the keep policy")
    body = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    escaped = re.sub(r"{{|}}", lambda found: f'{{{{ "{found[0]}" }}}}', body)
    marked = re.sub(r"^metadata:\n", f"metadata:\n{KEEP}", escaped, flags=re.MULTILINE)
    return NOTICE + SWITCH + marked + END


def wanted_files(checkout: Path) -> dict[Path, str]:
    """Path and content of every template that the present CRDs lead to."""
    return {
        checkout / TEMPLATES / file.name: chart_crd(file.read_text())
        for file in sorted((checkout / CRDS).glob("*.yaml"))
    }


def differences(checkout: Path) -> list[str]:
    """Names of templates that are missing, stale or left over."""
    wanted = wanted_files(checkout)
    present = set((checkout / TEMPLATES).glob("*.yaml"))
    stale = [path for path, text in wanted.items() if not same(path, text)]
    return sorted(path.name for path in [*stale, *(present - wanted.keys())])


def generate_chart_crds(checkout: Path, *, check: bool) -> int:
    """Write the templates, or with ``check`` only compare; the exit status."""
    found = differences(checkout)
    if check:
        for name in found:
            print(f"error: {TEMPLATES}/{name} differs: run `make generate`", file=sys.stderr)
        return 1 if found else 0
    wanted = wanted_files(checkout)
    (checkout / TEMPLATES).mkdir(parents=True, exist_ok=True)
    for name in found:
        path = checkout / TEMPLATES / name
        if path in wanted:
            path.write_text(wanted[path])
        else:
            path.unlink()
    return 0


def same(path: Path, text: str) -> bool:
    """Whether the file exists with this content."""
    return path.exists() and path.read_text() == text
