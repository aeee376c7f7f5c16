"""The same on a cluster that gives fixed answers: kubectl and helm are scripts that note calls."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from e2e.cluster.paths import cluster_paths
from e2e.cluster.settings import read_settings
from e2e.cluster.steps import Steps
from e2e.demo.existing import Asked, Refused
from e2e.demo.existing_run import (
    down_existing,
    meet,
    reach_gateway,
    refuse_foreign_quickstart,
)
from e2e.demo.keys import DemoKeys, write_env
from e2e.demo.place import DemoError, Place

SERVER = "https://cluster.example:6443"
PURGES = "get cachepurges.fleetward.io --output json"
DEFINITION = "get customresourcedefinitions cachepurges.fleetward.io --ignore-not-found"


@dataclass
class World:
    """A place, what the cluster answers by the start of a call, and what was called."""

    place: Place
    answers: dict[str, tuple[int, str]]
    folder: Path
    told: list[str]

    def say(self, start: str, out: str, *, status: int = 0) -> None:
        """Give this answer to calls that begin so; the latest comes first."""
        self.answers.pop(start, None)
        self.answers = {start: (status, out), **self.answers}
        for name in ("kubectl", "helm"):
            self._write(name)

    def _write(self, name: str) -> None:
        """A script that notes its words and answers by how they begin."""
        lines = ["#!/bin/sh", f'echo "{name} $*" >> {shlex.quote(str(self.folder / "log"))}']
        lines.append('case "$*" in')
        for start, (status, out) in self.answers.items():
            where = "" if status == 0 else " >&2"
            said = f"printf %s {shlex.quote(out)}{where}; exit {status}"
            lines.append(f"{shlex.quote(start)}*) {said};;")
        program = self.folder / name
        program.write_text("\n".join([*lines, "esac", ""]))
        program.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        """Every call so far."""
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def world(tmp_path: Path) -> World:
    settings = read_settings({"HOME": str(tmp_path), "PATH": str(tmp_path)})
    told: list[str] = []
    paths = cluster_paths(settings, checkout=tmp_path / "checkout")
    place = Place(paths, settings, Steps(tell=told.append), existing=True)
    world = World(place, {}, tmp_path, told)
    world.say("config current-context", "mine\n")
    world.say("config view", SERVER)
    world.say("get --raw /version", json.dumps({"gitVersion": "v1.30.1"}))
    return world


def installed_by_us(world: World, server: str = SERVER) -> None:
    world.place.env_file.parent.mkdir(parents=True, exist_ok=True)
    write_env(world.place, DemoKeys("fw-a", "fw-b"), FLEETWARD_CLUSTER=server)


def test_the_cluster_is_named_before_anything_is_done(world: World) -> None:
    assert meet(world.place) == SERVER
    assert world.told == [f"cluster: context mine, {SERVER}, Kubernetes v1.30.1"]


def test_no_context_is_a_refusal(world: World) -> None:
    world.say("config current-context", "current-context is not set", status=1)
    with pytest.raises(Refused, match="set KUBECONFIG"):
        meet(world.place)


def test_missing_rights_are_named(world: World) -> None:
    world.say("auth can-i --quiet create namespaces", "no", status=1)
    with pytest.raises(Refused, match=r"ask an administrator for: create namespaces$"):
        meet(world.place)


def test_a_missing_program_is_named(world: World) -> None:
    (world.folder / "kubectl").unlink()
    with pytest.raises(DemoError, match="kubectl is not on PATH"):
        meet(world.place)


def test_a_quickstart_of_somebody_else_is_not_overwritten(world: World) -> None:
    world.say("get namespace quickstart", "namespace/quickstart\n")
    with pytest.raises(Refused, match="did not make"):
        refuse_foreign_quickstart(world.place, server=SERVER)
    installed_by_us(world)
    refuse_foreign_quickstart(world.place, server=SERVER)
    with pytest.raises(Refused, match="did not make"):
        refuse_foreign_quickstart(world.place, server="https://other.example")


def test_down_on_another_cluster_is_refused(world: World) -> None:
    installed_by_us(world, "https://other.example")
    with pytest.raises(Refused, match="switch the context back"):
        down_existing(world.place)
    assert not [call for call in world.calls if "delete" in call or "uninstall" in call]


def test_down_while_a_purge_runs_is_refused(world: World) -> None:
    world.say(DEFINITION, "customresourcedefinition/cachepurges.fleetward.io\n")
    items = [{"metadata": {"name": "forget"}, "status": {"phase": "Purging"}}]
    world.say(PURGES, json.dumps({"items": items}))
    with pytest.raises(Refused, match="purge forget still runs"):
        down_existing(world.place)
    assert not [call for call in world.calls if "uninstall" in call]


def test_down_removes_what_was_installed_and_says_what_stays(world: World) -> None:
    installed_by_us(world)
    definitions = ("x.other.io", "tenants.fleetward.io")
    listed = "".join(f"customresourcedefinition/{name}\n" for name in definitions)
    world.say("get customresourcedefinitions --ignore-not-found", listed)
    world.say("get inferenceservices.fleetward.io", json.dumps({"items": []}))
    world.say("get namespace fleetward-system", "namespace/fleetward-system\n")
    down_existing(world.place)
    changing = [call for call in world.calls if " delete " in call or " uninstall " in call]
    assert [shlex.split(call)[:2] for call in changing] == [
        *[["kubectl", "delete"]] * 5,
        ["helm", "uninstall"],
    ]
    assert not [call for call in changing if "customresourcedefinition" in call]
    assert not [call for call in changing if "delete namespace fleetward" in call]
    text = "\n".join(world.told)
    assert "left: 1 definitions" in text
    assert "x.other.io" not in text
    assert not world.place.env_file.exists()


def test_without_a_quickstart_of_ours_only_the_release_goes(world: World) -> None:
    down_existing(world.place)
    assert not [call for call in world.calls if " delete " in call]
    assert [call for call in world.calls if call.startswith("helm uninstall fleetward")]


def test_without_a_release_nothing_is_uninstalled(world: World) -> None:
    world.say("status fleetward", "Error: release: not found", status=1)
    down_existing(world.place)
    assert not [call for call in world.calls if "uninstall" in call]
    assert "nothing to uninstall" in "\n".join(world.told)


def test_the_gateway_is_reached_through_a_port_forward(world: World) -> None:
    start = "--namespace fleetward-system port-forward --address 127.0.0.1"
    world.say(start, "Forwarding from 127.0.0.1:40123 -> 8080\n")
    with reach_gateway(world.place, Asked()) as reached:
        assert reached.gateway_url == "http://127.0.0.1:40123"
    world.say(start, "error: unable to listen", status=1)
    with (
        pytest.raises(DemoError, match="unable to listen"),
        reach_gateway(world.place, Asked()),
    ):
        pass


def test_the_gateways_own_address_needs_none(world: World) -> None:
    with reach_gateway(world.place, Asked(gateway_url="https://gw.example")) as reached:
        assert reached == replace(world.place, gateway_url="https://gw.example")
    assert world.calls == []


def test_nothing_leads_to_the_local_cluster(world: World) -> None:
    assert "KUBECONFIG" not in world.place.environment
    assert world.place.env_file.name == "existing.env"
