"""`CLUSTER=existing` with real kubectl and helm: what is installed, and what goes again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster.apiserver import ApiServer, start_api_server
from e2e.cluster.binaries import ensure_binaries
from e2e.cluster.paths import cluster_paths
from e2e.cluster.settings import read_settings
from e2e.cluster.steps import Steps
from e2e.demo.existing import Asked, Image, Refused
from e2e.demo.existing_run import down_existing, install_chart, meet, refuse_foreign_quickstart
from e2e.demo.keys import DemoKeys, apply_keys, write_env
from e2e.demo.place import Place

pytestmark = pytest.mark.timeout(900)
"""Helm and kubectl are programs of their own: on a crowded machine each call takes seconds."""

OPERATOR = Image("registry.test/operator", "1")
ENGINE = Image("registry.test/engine", "", "sha256:" + "e" * 64)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """A cluster that has never heard of us. It has no node: pods are made and never run."""
    server = start_api_server(tmp_path_factory.mktemp("existing"))
    yield server
    server.stop()


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def place(
    empty: ApiServer, told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Place:
    """That cluster as a person with kubectl, helm and KUBECONFIG has it."""
    binaries = ensure_binaries(read_settings(), steps=Steps())
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f'#!/bin/sh\nexec "{binaries.kube}" kubectl "$@"\n')
    kubectl.chmod(0o755)
    monkeypatch.setenv("KUBECONFIG", str(empty.kubeconfig))
    monkeypatch.setenv("PATH", f"{tmp_path}:{binaries.helm.parent}:{os.environ['PATH']}")
    settings = read_settings()
    # A checkout's own file would say on which cluster its quickstart is.
    monkeypatch.setattr(Place, "env_file", property(lambda _self: tmp_path / "existing.env"))
    return Place(cluster_paths(settings), settings, Steps(tell=told.append), existing=True)


def read(place: Place, *words: str) -> list[str]:
    """Names of what `kubectl get` finds."""
    return [name.partition("/")[2] for name in place.kubectl("get", *words, "-o", "name").split()]


def test_what_is_installed_goes_again_and_what_holds_data_stays(
    place: Place, told: list[str]
) -> None:
    server = meet(place)
    assert "context" in told[0]
    refuse_foreign_quickstart(place, server=server)
    install_chart(place, Asked(registry="registry.test"), operator=OPERATOR, engine=ENGINE)
    listed = json.loads(place.kubectl("get", "deployments", "-n", "fleetward-system", "-o", "json"))
    images = {
        container["image"]
        for item in listed["items"]
        for container in item["spec"]["template"]["spec"]["containers"]
    }
    assert images == {OPERATOR.reference}
    keys = DemoKeys("fw-a", "fw-b")
    apply_keys(place, keys)
    write_env(place, keys, FLEETWARD_CLUSTER=server)
    place.kubectl("apply", "-f", str(place.examples / "namespace.yaml"))
    place.kubectl("apply", "-f", str(place.examples))
    down_existing(place)
    assert read(place, "deployments", "-n", "fleetward-system") == []
    assert "quickstart" not in read(place, "namespaces")
    assert read(place, "tenants.fleetward.io") == []
    assert read(place, "secrets", "-n", "fleetward-keys") == []
    text = "\n".join(told)
    assert "left: 4 definitions" in text
    assert "fleetward-system and fleetward-keys" in text
    assert not place.env_file.exists()


def test_a_quickstart_of_somebody_else_stays(place: Place) -> None:
    place.kubectl("create", "namespace", "quickstart")
    with pytest.raises(Refused, match="did not make"):
        refuse_foreign_quickstart(place, server=meet(place))
    down_existing(place)
    assert "quickstart" in read(place, "namespaces")


def test_who_may_not_install_is_told_what_is_missing(
    place: Place, empty: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(empty.kubeconfig_for_user("visitor")))
    visitor = Place(place.paths, read_settings(), place.steps, existing=True)
    with pytest.raises(Refused, match=r"create customresourcedefinitions.*create secrets"):
        meet(visitor)
