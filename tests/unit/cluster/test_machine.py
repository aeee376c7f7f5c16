"""What is refused, and with which words; what the environment decides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from e2e.cluster.binaries import PACKAGES, Binaries, link_flags, source_hash
from e2e.cluster.configfile import write_json_config
from e2e.cluster.debian import Machine, check_machine, missing_packages
from e2e.cluster.errors import Occupied, Unsupported
from e2e.cluster.network import refuse_taken_range
from e2e.cluster.owner import claim, current_owner
from e2e.cluster.paths import Paths
from e2e.cluster.processes import boot_id, observe, write_record
from e2e.cluster.settings import Settings, read_settings
from e2e.cluster.toolchain import parse_go_version


def test_root_on_linux_is_accepted() -> None:
    check_machine(Machine(system="Linux", user_id=0, has_apt=True))


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (Machine(system="Linux", user_id=1000, has_apt=True), "needs root"),
        (Machine(system="Darwin", user_id=0, has_apt=False), "needs Linux, and this is Darwin"),
    ],
)
def test_other_machines_are_refused_with_the_reason(machine: Machine, words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        check_machine(machine)


def test_everything_missing_is_named_once(tmp_path: Path) -> None:
    settings = Settings(cache=tmp_path, environment={"PATH": str(tmp_path)})
    missing = missing_packages(settings, plugins=tmp_path)
    assert missing == sorted(set(missing))
    assert {"containerd", "runc", "iptables", "containernetworking-plugins"} <= set(missing)


def test_cache_and_search_path_come_from_the_environment() -> None:
    settings = read_settings({"FLEETWARD_CACHE": "/data/c", "PATH": "/usr/bin:/sbin", "HOME": "/h"})
    assert settings.cache == Path("/data/c")
    assert settings.environment["PATH"] == "/usr/bin:/sbin:/usr/local/sbin:/usr/sbin"
    assert read_settings({"HOME": "/h"}).cache == Path("/h/.cache/fleetward")


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26)),
        ("go version go1.9 linux/amd64", (1, 9)),
        ("gopher", None),
    ],
)
def test_go_version(printed: str, version: tuple[int, int] | None) -> None:
    assert parse_go_version(printed) == version


def test_any_change_of_the_sources_is_another_binary(tmp_path: Path) -> None:
    for name in ("go.mod", "go.sum", "main.go"):
        (tmp_path / name).write_text("x")
    seen = {source_hash(tmp_path, go="go1.26"), source_hash(tmp_path, go="go1.27")}
    for name in ("go.mod", "go.sum", "main.go"):
        (tmp_path / name).write_text("y")
        seen.add(source_hash(tmp_path, go="go1.26"))
    assert len(seen) == 5
    assert "gitVersion=v1.34.4" in link_flags()


def test_binaries_are_complete_only_together(tmp_path: Path) -> None:
    *most, last = PACKAGES
    for name in most:
        (tmp_path / name).touch()
    assert not Binaries(tmp_path).complete
    (tmp_path / last).touch()
    assert Binaries(tmp_path).complete


def test_another_content_is_another_configuration_file(tmp_path: Path) -> None:
    one = write_json_config(tmp_path, "x.json", {"a": 1})
    two = write_json_config(tmp_path, "x.json", {"a": 2})
    assert one != two
    assert json.loads(one.read_text()) == {"a": 1}
    written = one.stat().st_mtime_ns
    assert write_json_config(tmp_path, "x.json", {"a": 1}) == one
    assert one.stat().st_mtime_ns == written


def test_a_range_in_use_is_refused_by_its_route() -> None:
    refuse_taken_range(["default", "10.0.0.0/8"])
    with pytest.raises(Occupied, match=r"198\.18\.5\.0/24"):
        refuse_taken_range(["198.18.5.0/24"])


def paths(tmp_path: Path, checkout: str) -> Paths:
    folder = tmp_path / checkout
    return Paths(folder, folder / ".local" / "cluster", tmp_path / "cache", tmp_path / "run")


def test_a_live_cluster_of_another_checkout_is_left_alone(tmp_path: Path) -> None:
    settings = Settings(cache=tmp_path / "cache", environment={})
    theirs, ours = paths(tmp_path, "theirs"), paths(tmp_path, "ours")
    assert current_owner(ours, settings) == ours
    claim(theirs)
    theirs.checkout.mkdir()
    theirs.pids.mkdir()
    # Dead: it may be cleared away. Alive: refused. Alive, but its checkout deleted: cleared away.
    assert current_owner(ours, settings).checkout == theirs.checkout
    write_record(theirs.pids / "etcd.json", observe(1, argv=("etcd",)))
    assert boot_id()
    with pytest.raises(Occupied, match="theirs"):
        current_owner(ours, settings)
    assert current_owner(theirs, settings) == theirs
    theirs.checkout.rmdir()
    assert current_owner(ours, settings).checkout == theirs.checkout
