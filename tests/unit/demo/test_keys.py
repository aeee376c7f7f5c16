"""The tenants' keys: kept over runs, never seen by others."""

from __future__ import annotations

import shlex
import stat
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from e2e.cluster.paths import cluster_paths
from e2e.cluster.settings import read_settings
from e2e.cluster.steps import Steps
from e2e.demo.keys import DemoKeys, parse_env, read_or_make_keys, write_env
from e2e.demo.place import GATEWAY_URL, Place


def place_of(checkout: Path) -> Place:
    settings = read_settings({"HOME": "/nonexistent", "PATH": "/usr/bin"})
    return Place(cluster_paths(settings, checkout=checkout), settings, Steps())


def test_new_keys_are_long_and_apart(tmp_path: Path) -> None:
    keys = read_or_make_keys(tmp_path / "env")
    assert keys.a != keys.b
    assert all(len(key) >= 48 for key in (keys.a, keys.b))


def test_keys_survive_another_run(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    keys = read_or_make_keys(place.env_file)
    write_env(place, keys)
    assert read_or_make_keys(place.env_file) == keys


def test_the_file_is_for_its_owner_and_holds_all_that_a_client_needs(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    place.env_file.parent.mkdir(parents=True)
    place.env_file.touch(mode=0o644)
    write_env(place, DemoKeys("fw-a", "fw-b"))
    assert stat.S_IMODE(place.env_file.stat().st_mode) == 0o600
    assert parse_env(place.env_file.read_text()) == {
        "KUBECONFIG": str(place.kubeconfig),
        "FLEETWARD_URL": GATEWAY_URL,
        "FLEETWARD_MODEL": "smollm2",
        "FLEETWARD_KEY_A": "fw-a",
        "FLEETWARD_KEY_B": "fw-b",
    }


@given(st.text(alphabet=st.characters(exclude_characters="\x00\r\n", exclude_categories=["Cs"])))
def test_any_checkouts_path_comes_back(name: str) -> None:
    assert parse_env(f"export KUBECONFIG={shlex.quote(name)}\n")["KUBECONFIG"] == name
