"""The operator's process: what it opened is closed when it cannot start."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from e2e.cluster.ports import free_port
from fleetward_kube import KubeClient
from fleetward_operator.handlers.app import App
from fleetward_operator.settings import EngineRules, Identity, Ports, Settings, Timings


def _settings(health: int, metrics: int) -> Settings:
    return Settings(
        identity=Identity(pod_name="operator-0", namespace="release", pod_uid="operator-0"),
        key_namespace="keys",
        engine=EngineRules(
            default_image="registry.test/engine:1",
            images=(),
            namespaces=("apps",),
            pull_policy="IfNotPresent",
            scraper_namespaces=(),
        ),
        gateway_url="http://gateway.test",
        ports=Ports(health=health, metrics=metrics, member_admin=free_port()),
        timings=Timings(),
    )


async def test_a_port_in_use_leaves_nothing_open(tmp_path: Path) -> None:
    health, metrics = free_port(), free_port()
    nowhere = {"KUBECONFIG": str(tmp_path / "none")}
    with socket.socket() as busy:
        busy.bind(("0.0.0.0", metrics))
        busy.listen()
        app = App(_settings(health, metrics), connect=lambda: KubeClient.from_environment(nowhere))
        with pytest.raises(OSError, match=str(metrics)):
            await app.start()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("0.0.0.0", health))
