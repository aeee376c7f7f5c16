"""Command line: ``python -m e2e.demo up | redeploy | down [--cluster local | existing]``."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from e2e.cluster.binaries import ensure_binaries
from e2e.cluster.debian import check_machine, ensure_packages, observe_machine
from e2e.cluster.errors import ClusterError
from e2e.cluster.steps import Steps
from e2e.cluster.up import up as cluster_up
from e2e.demo.existing import Refused, choose_cluster, read_asked
from e2e.demo.existing_run import down_existing, up_existing
from e2e.demo.keys import MODEL, apply_keys, read_or_make_keys, write_env
from e2e.demo.place import Place, find_place, one_at_a_time
from e2e.demo.release import deploy
from e2e.demo.story import tell_story, wait_answering
from e2e.demo.waiting import wait_service
from e2e.images import ImageSet, build_images, load_images
from e2e.images.base import ensure_programs
from fleetward_api.errors import FleetwardError

NAMESPACE = "quickstart"
NEXT = """
What to try next:
  source .local/env                                 # the cluster, the gateway, the model, two keys
  .venv/bin/fleetward chat "Tell me about tides."   # as tenant A; for B: --key "$FLEETWARD_KEY_B"
  .venv/bin/fleetward status
  kubectl -n quickstart edit cachepolicies.fleetward.io careful   # in force without a restart
  kubectl create -f examples/purge.yaml             # then: fleetward evidence verify --purge NAME
  make redeploy                                     # after a change of our code
  make down                                         # leaves nothing behind
"""


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 all is as it should be, 1 it is not (with a sentence on stderr)."""
    parser = argparse.ArgumentParser(prog="python -m e2e.demo", description=__doc__)
    parser.add_argument("command", choices=["up", "redeploy", "down"])
    parser.add_argument("--cluster", default="", help="local (the default) or existing")
    options = parser.parse_args(argv)
    command = options.command
    place = find_place(steps=Steps())
    try:
        existing = choose_cluster(options.cluster) == "existing"
        with one_at_a_time(place):
            if existing:
                on_existing_cluster(replace(place, existing=True), command)
            elif command == "up":
                up(place)
            elif command == "redeploy":
                redeploy(place)
            else:
                raise Refused("the local cluster is stopped with `make down`")
    except (ClusterError, FleetwardError) as error:
        print(f"demo {command}: {error}", file=sys.stderr)
        return 1
    return 0


def on_existing_cluster(place: Place, command: str) -> None:
    """The same commands where somebody else runs the cluster."""
    if command == "down":
        down_existing(place)
    else:
        up_existing(place, read_asked(place.settings.environment))


def up(place: Place) -> None:
    """Start whatever does not run, apply the quickstart, tell the story."""
    images = start_cluster_and_build(place)
    load_images(images, steps=place.steps)
    with place.steps.step("chart: install or upgrade, until operator and gateway are ready"):
        deploy(place, images)
    keys = read_or_make_keys(place.env_file)
    write_env(place, keys)
    with place.steps.step("quickstart: tenants, policy and service, until it answers"):
        apply_keys(place, keys)
        place.kubectl("apply", "-f", str(place.examples / "namespace.yaml"))
        place.kubectl("apply", "-f", str(place.examples))
        wait_service(place, NAMESPACE, MODEL, image=images.engine)
        wait_answering(place, keys.a)
    tell_story(place, keys)
    place.steps.tell(NEXT)
    place.steps.total("everything is up")


def start_cluster_and_build(place: Place) -> ImageSet:
    """Cluster and images at the same time: compiling and downloading overlap well."""
    check_machine(observe_machine(place.settings))
    # Debian packages first: both need some, and apt serves one caller at a time.
    ensure_packages(place.settings, steps=place.steps)
    ensure_programs(place.settings.environment["PATH"], steps=place.steps)
    with ThreadPoolExecutor(max_workers=1) as pool:
        cluster = pool.submit(cluster_up, place.paths, place.settings, steps=place.steps)
        images = build_images(steps=place.steps)
        cluster.result()
    return images


def redeploy(place: Place) -> None:
    """Build, import and roll out a change of our code; the service is Ready again at the end."""
    ensure_binaries(place.settings, steps=place.steps)
    images = build_images(steps=place.steps)
    load_images(images, steps=place.steps)
    with place.steps.step("chart: upgrade, until operator and gateway are ready"):
        deploy(place, images)
    with place.steps.step("service: until every replica runs the new image"):
        wait_service(place, NAMESPACE, MODEL, image=images.engine)
    place.steps.total("redeployed")


if __name__ == "__main__":
    sys.exit(main())
