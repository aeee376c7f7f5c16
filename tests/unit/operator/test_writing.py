"""Statuses only when they differ and never in a storm; Events once; settings by name."""

from __future__ import annotations

import datetime as dt
from typing import Any, cast

import pytest

from fleetward_api.resources import TenantStatus
from fleetward_api.resources.condition import Condition
from fleetward_kube import KubeClient
from fleetward_operator.core.events import Announcement
from fleetward_operator.edges.events import REPEAT_AFTER_S, EventRecorder
from fleetward_operator.edges.metrics import Metrics
from fleetward_operator.edges.own_writes import OwnWrites
from fleetward_operator.edges.status_writer import BURST, SWEPT_ABOVE, StatusWriter
from fleetward_operator.edges.writer import Writer
from fleetward_operator.settings import SettingsError, read_settings
from tests.support.object_api import ObjectApi

TENANT = {
    "apiVersion": "fleetward.io/v1alpha1",
    "kind": "Tenant",
    "metadata": {"name": "alpha", "uid": "t", "resourceVersion": "1"},
}
BASE = {
    "POD_NAME": "operator-0",
    "POD_NAMESPACE": "fleetward-system",
    "FLEETWARD_ENGINE_IMAGE": "engine:1",
}


def writer(api: ObjectApi) -> Writer:
    return Writer(cast("KubeClient", api), may_write=lambda: True, metrics=Metrics(), timeout_s=1.0)


async def test_an_equal_status_is_not_written() -> None:
    api = ObjectApi()
    statuses = StatusWriter(
        cast("KubeClient", api),
        writer(api),
        OwnWrites(lambda: 0.0),
        newest=lambda _kind, _key: None,
        clock=lambda: 0.0,
    )
    same = TenantStatus(keys=1)
    assert await statuses.write(TENANT, before=same, after=TenantStatus(keys=1)) is None
    assert api.writes == []


async def test_conditions_of_others_and_their_order_are_no_reason_to_write() -> None:
    api = ObjectApi()
    statuses = StatusWriter(
        cast("KubeClient", api),
        writer(api),
        OwnWrites(lambda: 0.0),
        newest=lambda _kind, _key: None,
        clock=lambda: 0.0,
    )

    def told(*kinds: str) -> TenantStatus:
        return TenantStatus(
            conditions=tuple(
                Condition(type=kind, status="True", reason="KeysWork", message="") for kind in kinds
            )
        )

    after = told("Ready", "KeysReady")
    for before in (told("Ready", "KeysReady", "Counted"), told("Counted", "KeysReady", "Ready")):
        assert await statuses.write(TENANT, before=before, after=after) is None
        assert api.writes == []
    # One of ours that is missing is.
    await statuses.write(TENANT, before=told("Ready", "Counted"), after=after)
    assert len(api.writes) == 1


def status_writer(api: ObjectApi, now: list[float]) -> StatusWriter:
    """One whose clock shows what stands in `now`."""
    return StatusWriter(
        cast("KubeClient", api),
        writer(api),
        OwnWrites(lambda: now[0]),
        newest=lambda _kind, _key: None,
        clock=lambda: now[0],
    )


async def test_a_storm_of_changes_becomes_one_a_second() -> None:
    api, now = ObjectApi(), [0.0]
    statuses = status_writer(api, now)
    waits: list[float | None] = []
    for number in range(int(BURST) + 3):
        after = TenantStatus(keys=number + 1)
        waits.append(await statuses.write(TENANT, before=TenantStatus(), after=after))
    assert len(api.writes) == BURST
    assert waits[int(BURST)] == 1.0
    now[0] = 1.0
    assert await statuses.write(TENANT, before=TenantStatus(), after=TenantStatus(keys=99)) is None


async def test_who_has_written_lately_is_remembered_and_no_one_else() -> None:
    api, now = ObjectApi(), [0.0]
    statuses = status_writer(api, now)
    for number in range(4 * SWEPT_ABOVE):
        now[0] += 0.1
        metadata = {"name": "alpha", "uid": f"u{number}", "resourceVersion": "1"}
        item = {**TENANT, "metadata": metadata}
        await statuses.write(item, before=TenantStatus(), after=TenantStatus(keys=1))
    assert len(statuses._allowance) <= SWEPT_ABOVE + 1
    for number in range(int(BURST)):
        after = TenantStatus(keys=number + 2)
        assert (await statuses.write(item, before=TenantStatus(), after=after) is None) is (
            number < BURST - 1
        )


async def test_the_same_words_are_told_once_an_hour() -> None:
    api, now = ObjectApi(), [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)]
    events = EventRecorder(writer(api), instance="operator-0", wall=lambda: now[0])
    told = Announcement(type="Warning", reason="KeysMissing", message="gone")
    for _ in range(3):
        await events.announce(TENANT, told)
    await events.announce(TENANT, Announcement(type="Normal", reason="X", message="other"))
    assert len(api.writes) == 2
    now[0] += dt.timedelta(seconds=REPEAT_AFTER_S + 1)
    await events.announce(TENANT, told)
    assert len(api.writes) == 3
    event = next(iter(api.objects.values()))
    assert event["metadata"]["namespace"] == "default"
    assert event["involvedObject"]["name"] == "alpha"


async def test_an_event_that_cannot_be_written_is_no_fault() -> None:
    api = ObjectApi()
    api.away = True
    events = EventRecorder(
        writer(api), instance="o", wall=lambda: dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    )
    await events.announce(TENANT, Announcement(type="Normal", reason="X", message="y"))


def test_settings_come_from_the_environment() -> None:
    settings = read_settings(
        {
            **BASE,
            "FLEETWARD_SERVICE_NAMESPACES": "apps, more",
            "FLEETWARD_ENGINE_IMAGE_ALLOW": "",
            "FLEETWARD_HEALTH_PORT": "9999",
            "FLEETWARD_ENGINE_IMAGE_PULL_SECRETS": "reg, other",
            "FLEETWARD_ACCELERATOR_RUNTIME_CLASS": "nvidia",
            "FLEETWARD_ISOLATION_PROBE_INTERVAL": "1h",
        }
    )
    assert settings.isolation_probe_interval_s == 3600
    assert read_settings(BASE).isolation_probe_interval_s == 600
    assert (
        read_settings(
            {**BASE, "FLEETWARD_ISOLATION_PROBE_INTERVAL": "0"}
        ).isolation_probe_interval_s
        == 0
    )
    assert settings.engine.pull_secrets == ("reg", "other")
    assert settings.engine.accelerator_runtime_class == "nvidia"
    assert settings.engine.namespaces == ("apps", "more")
    assert settings.engine.images == ()
    assert (settings.ports.health, settings.ports.member_admin) == (9999, 8001)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"POD_NAME": ""}, "POD_NAME is missing"),
        ({"FLEETWARD_ENGINE_IMAGE": " "}, "FLEETWARD_ENGINE_IMAGE is missing"),
        ({"FLEETWARD_IMAGE_PULL_POLICY": "Sometimes"}, "must be one of"),
        ({"FLEETWARD_ISOLATION_PROBE_INTERVAL": "often"}, "is no duration"),
        ({"FLEETWARD_ISOLATION_PROBE_INTERVAL": "10s"}, "at least 1m"),
        ({"FLEETWARD_HEALTH_PORT": "0"}, "must be a port"),
        ({"FLEETWARD_METRICS_PORT": "x"}, "must be a port"),
    ],
)
def test_a_wrong_variable_is_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        read_settings({**BASE, **changes})
