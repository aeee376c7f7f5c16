"""The environment: read once, refused with the name of the variable."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetward_api.tenant_label import MAX_TENANT_LABELS, TenantLabel
from fleetward_gateway.problem import Problem, bounded_retry_after
from fleetward_gateway.settings import Bounds, SettingsInvalid, read_settings

NEEDED = {
    "POD_NAME": "gateway-0",
    "POD_NAMESPACE": "fleetward-system",
    "POD_UID": "u",
    "POD_IP": "10.0.0.1",
    "FLEETWARD_KEY_NAMESPACE": "fleetward-keys",
}


def test_what_the_chart_sets_is_enough() -> None:
    settings = read_settings(NEEDED)
    assert settings.pod.namespace == "fleetward-system"
    assert (settings.ports.public, settings.ports.admin, settings.ports.metrics) == (
        8080,
        8001,
        9090,
    )
    assert settings.bounds == Bounds()
    assert settings.token_file == Path("/var/run/secrets/fleetward/token")


def test_each_bound_can_be_set() -> None:
    changed = read_settings(
        {
            **NEEDED,
            "FLEETWARD_GATEWAY_MAX_BODY_BYTES": "10",
            "FLEETWARD_GATEWAY_BODY_SECONDS": "1.5",
            "FLEETWARD_GATEWAY_PORT": "0",
            "FLEETWARD_GATEWAY_DRAIN_DELAY_SECONDS": "0",
        }
    )
    assert changed.bounds.body_bytes == 10
    assert changed.bounds.body_s == 1.5
    assert changed.ports.public == 0
    assert changed.draining.delay_s == 0
    assert changed.service_namespaces == ("*",)
    named = read_settings({**NEEDED, "FLEETWARD_SERVICE_NAMESPACES": "apps, more"})
    assert named.service_namespaces == ("apps", "more")


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_a_missing_variable_is_named(name: str) -> None:
    with pytest.raises(SettingsInvalid, match=name):
        read_settings({key: value for key, value in NEEDED.items() if key != name})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FLEETWARD_GATEWAY_MAX_BODY_BYTES", "0"),
        ("FLEETWARD_GATEWAY_MAX_BODY_BYTES", "-1"),
        ("FLEETWARD_GATEWAY_MAX_HELD_BYTES", "1e6"),
        ("FLEETWARD_GATEWAY_PORT", "65536"),
        ("FLEETWARD_GATEWAY_PORT", "http"),
        ("FLEETWARD_GATEWAY_BODY_SECONDS", "nan"),
        ("FLEETWARD_GATEWAY_BODY_SECONDS", "inf"),
        ("FLEETWARD_GATEWAY_CLIENT_STALL_SECONDS", "soon"),
    ],
)
def test_what_cannot_be_meant_is_refused(name: str, value: str) -> None:
    with pytest.raises(SettingsInvalid, match=name):
        read_settings({**NEEDED, name: value})


def test_tenant_labels_are_bounded() -> None:
    labels = TenantLabel()
    values = {labels.of(f"tenant-{number}") for number in range(5000)}
    assert len(values) <= MAX_TENANT_LABELS + 8
    assert labels.of("tenant-0") == "tenant-0"
    assert labels.of("tenant-4999").startswith("other-")
    assert labels.of("") == ""


def test_retry_after_is_always_one_to_sixty_seconds() -> None:
    assert [bounded_retry_after(seconds) for seconds in (-5, 0, 1, 60, 61, 10**9)] == [
        *(1, 1, 1, 60, 60, 60)
    ]
    assert Problem(503, "c", "m", retry_after_s=900).extra_headers() == [(b"retry-after", b"60")]
