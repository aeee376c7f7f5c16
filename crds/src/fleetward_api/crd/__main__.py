"""``python -m fleetward_api.crd``: prints CRDs and the conditions page, or checks for drift."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fleetward_api.crd.conditions_doc import print_conditions
from fleetward_api.crd.printing import print_definitions


def main(arguments: list[str] | None = None) -> int:
    """Writes the asked files; with ``--check`` names those that differ and returns 1."""
    parser = argparse.ArgumentParser(prog="python -m fleetward_api.crd", description=__doc__)
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="folder of the CRD files")
    parser.add_argument("--conditions-doc", type=Path, metavar="FILE", help="the conditions page")
    parser.add_argument("--check", action="store_true", help="write nothing, name what differs")
    options = parser.parse_args(arguments)
    wanted: dict[Path, str] = {}
    if options.output is not None:
        wanted |= {options.output / name: text for name, text in print_definitions().items()}
    if options.conditions_doc is not None:
        wanted[options.conditions_doc] = print_conditions()
    if not wanted:
        parser.error("name --output FOLDER, --conditions-doc FILE or both")
    return _check(wanted) if options.check else _write(wanted)


def _check(wanted: dict[Path, str]) -> int:
    stale = [path for path, text in wanted.items() if _read(path) != text]
    for path in stale:
        print(f"{path} differs from the models: run `make generate`", file=sys.stderr)
    return 1 if stale else 0


def _write(wanted: dict[Path, str]) -> int:
    for path, text in wanted.items():
        if _read(path) != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(path)
    return 0


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
