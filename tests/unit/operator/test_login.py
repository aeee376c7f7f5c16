"""kopf logs in by the API server's address, since nothing of ours needs cluster DNS."""

from __future__ import annotations

import kopf
import pytest

from fleetward_operator.handlers.kopf_registry import by_address

_BY_NAME = kopf.ConnectionInfo(server="https://kubernetes.default.svc", token="t")


@pytest.mark.parametrize(
    ("environment", "server"),
    [
        ({"KUBERNETES_SERVICE_HOST": "198.19.0.1"}, "https://198.19.0.1:443"),
        (
            {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"},
            "https://[fd00::1]:6443",
        ),
        ({}, "https://kubernetes.default.svc"),
    ],
)
def test_the_address_replaces_the_name(environment: dict[str, str], server: str) -> None:
    connection = by_address(_BY_NAME, environment)
    assert connection.server == server
    assert connection.token == "t"
