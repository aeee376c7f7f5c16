"""Command line: ``python -m e2e.images build | load | refs | chart-crds [--check]``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

from e2e.cluster.errors import ClusterError
from e2e.cluster.paths import CHECKOUT
from e2e.cluster.steps import Steps
from e2e.images.build import build_images, image_set, plan_images
from e2e.images.chart_crds import generate_chart_crds
from e2e.images.load import load_images
from e2e.images.settings import read_image_settings


def build_parser() -> argparse.ArgumentParser:
    """The commands and what they do."""
    parser = argparse.ArgumentParser(prog="python -m e2e.images", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build what is missing of the two images")
    commands.add_parser("load", help="build, then import into the running local cluster")
    commands.add_parser("refs", help="print the images' names for the present inputs as JSON")
    crds = commands.add_parser("chart-crds", help="copy crds/*.yaml into the chart as templates")
    crds.add_argument("--check", action="store_true", help="fail on a difference, write nothing")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 failed (with a sentence on stderr)."""
    options = build_parser().parse_args(argv)
    try:
        return run_command(options.command, check=getattr(options, "check", False))
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def run_command(command: str, *, check: bool) -> int:
    """Carry out one command."""
    if command == "chart-crds":
        return generate_chart_crds(CHECKOUT, check=check)
    settings = read_image_settings()
    if command == "refs":
        print(json.dumps(dataclasses.asdict(image_set(plan_images(settings=settings)))))
        return 0
    steps = Steps()
    images = build_images(steps=steps, settings=settings)
    if command == "load":
        load_images(images, steps=steps, settings=settings)
    steps.total(f"images ready: {images.operator} {images.engine}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
