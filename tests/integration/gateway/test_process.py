"""The gateway process on a real API server: what it waits for, follows and forgets."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import AsyncIterator
from ipaddress import ip_address
from typing import Any

import psutil
import pytest

from fleetward_api.identity import IdentityClaims, verify_identity
from tests.integration.gateway.conftest import World
from tests.support.eventually import eventually
from tests.support.fake_engine import FakeEngine, events

KEY_A, KEY_B = b"sk-a-0123456789abcdef", b"sk-b-0123456789abcdef"
FIRST, SECOND = b'data: {"n":1}\n\n', b'data: {"n":2}\n\n'
DONE = b"data: [DONE]\n\n"


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    fake = FakeEngine(host=own_address())
    await fake.start()
    yield fake
    await fake.stop()


def own_address() -> str:
    """An address of this machine that is no loopback: the API server takes none in a slice."""
    found = [
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family == socket.AF_INET and not ip_address(entry.address).is_loopback
    ]
    assert found, "this machine has no IPv4 address but loopback"
    return found[0]


class Objects:
    """The manifests of one test, named apart from those of others."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.mark = world.release.removeprefix("release-")
        self.model = f"model-{self.mark}"

    def tenant(self, letter: str) -> dict[str, Any]:
        name, secret = f"t{letter}-{self.mark}", self.world.key_secret(f"key-{letter}")
        return {
            "apiVersion": "fleetward.io/v1alpha1",
            "kind": "Tenant",
            "metadata": {"name": name, "labels": {"letter": f"{letter}-{self.mark}"}},
            "spec": {"apiKeys": [{"name": "main", "secretRef": {"name": secret}}]},
        }

    def service(self, *letters: str) -> dict[str, Any]:
        values = [f"{letter}-{self.mark}" for letter in letters]
        expression = {"key": "letter", "operator": "In", "values": values}
        return {
            "apiVersion": "fleetward.io/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"namespace": self.world.apps, "name": "svc"},
            "spec": {
                "model": {"name": self.model, "source": "package://demo"},
                "access": {"tenantSelector": {"matchExpressions": [expression]}},
            },
        }

    def slice_(self, engine: FakeEngine, *, ready: bool = True) -> dict[str, Any]:
        endpoint = {**engine.endpoint("pod-1"), "conditions": {"ready": ready}}
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "namespace": self.world.apps,
                "name": "svc-1",
                "labels": {
                    "fleetward.io/service": "svc",
                    "app.kubernetes.io/component": "engine",
                },
            },
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": engine.port, "protocol": "TCP"}],
            "endpoints": [endpoint],
        }


async def test_waits_for_the_floors_and_follows_every_change(
    world: World, engine: FakeEngine
) -> None:
    objects = Objects(world)
    world.start()
    await world.until_waiting("floors")
    await world.operator_objects()
    await world.until_waiting("the ConfigMap fleetward-floors", alone=True)
    assert await world.status(KEY_A.decode(), objects.model) == 503
    await world.apply(world.config_map("fleetward-floors", floors_json='{"version":1}'))
    await world.until_ready()

    key_a, key_b = KEY_A.decode(), KEY_B.decode()
    assert await world.status(key_a, objects.model) == 401
    await world.apply(world.secret("key-a", world.keys, key=KEY_A))
    await world.apply(world.secret("key-b", world.keys, key=KEY_B + b"\n"))
    for letter in "ab":
        await world.apply(objects.tenant(letter))
    await world.until_status(404, key=key_a, model=objects.model)
    await world.until_status(404, key=key_b, model=objects.model)
    await world.apply(objects.service("a"))
    await world.until_status(503, key=key_a, model=objects.model)
    assert await world.status(key_b, objects.model) == 404
    await world.apply(objects.slice_(engine))
    await world.until_status(200, key=key_a, model=objects.model)
    assert await world.status(key_b, objects.model) == 404

    await world.apply(objects.service("b"))
    await world.until_status(404, key=key_a, model=objects.model)
    await world.until_status(200, key=key_b, model=objects.model)
    await world.apply(objects.service("a", "b"))
    await world.until_status(200, key=key_a, model=objects.model)

    tenant = objects.tenant("a")["metadata"]["name"]
    floors = f'{{"version":2,"tenants":{{"{tenant}":7}}}}'
    await world.apply(world.config_map("fleetward-floors", floors_json=floors))
    async with asyncio.timeout(30):
        while (await last_claims(world, engine, key_a, objects)).floors.tenant != 7:
            pass

    await world.apply(world.secret("key-a", world.keys, key=b"sk-a-rotated-0123456789"))
    await world.until_status(401, key=key_a, model=objects.model)
    await world.until_status(200, key="sk-a-rotated-0123456789", model=objects.model)
    await world.delete(world.secret("key-b", world.keys))
    await world.until_status(401, key=key_b, model=objects.model)
    await world.apply(objects.slice_(engine, ready=False))
    await world.until_status(503, key="sk-a-rotated-0123456789", model=objects.model)
    await world.delete(objects.tenant("a"))
    await world.until_status(401, key="sk-a-rotated-0123456789", model=objects.model)
    for secret in (key_a, key_b, "sk-a-rotated"):
        assert secret not in world.log


async def last_claims(
    world: World, engine: FakeEngine, key: str, objects: Objects
) -> IdentityClaims:
    assert await world.status(key, objects.model) == 200
    made = await world.client.request(
        "GET",
        f"/apis/fleetward.io/v1alpha1/namespaces/{world.apps}/inferenceservices/svc",
    )
    return verify_identity(
        engine.requests[-1][0]["fleetward-identity"],
        world.signing.verify_key,
        service_uid=made["metadata"]["uid"],
        now=time.time(),
    )


async def ready_world(world: World, engine: FakeEngine) -> Objects:
    objects = Objects(world)
    await world.operator_objects()
    await world.apply(world.config_map("fleetward-floors", floors_json='{"version":1}'))
    await world.apply(world.secret("key-a", world.keys, key=KEY_A))
    await world.apply(objects.tenant("a"))
    await world.apply(objects.service("a"))
    await world.apply(objects.slice_(engine))
    world.start()
    await world.until_ready()
    await world.until_status(200, key=KEY_A.decode(), model=objects.model)
    return objects


async def test_a_drain_lets_streams_finish_and_the_process_ends_with_zero(
    world: World, engine: FakeEngine
) -> None:
    objects = await ready_world(world, engine)
    engine.behaviour = events(FIRST, SECOND, DONE, pause_s=1.0)
    response = await world.session.post(
        world.url + "/v1/chat/completions",
        json={"model": objects.model, "stream": True},
        headers={"Authorization": f"Bearer {KEY_A.decode()}"},
    )
    assert await response.content.readany() == FIRST
    assert world.process is not None
    world.process.send_signal(signal.SIGTERM)
    await world.until_waiting("the gateway is draining", alone=True)
    assert await response.content.read() == SECOND + DONE
    response.close()
    process = world.process
    await eventually(lambda: process.poll() is not None)
    assert process.returncode == 0
    assert "Traceback" not in world.log


async def test_missing_settings_end_it_with_one_sentence(world: World) -> None:
    world.kubeconfig = world.folder / "absent"
    process = world.start()
    await eventually(lambda: process.poll() is not None)
    assert process.returncode == 1
    assert "fleetward-gateway: " in world.log
    assert "set KUBECONFIG" in world.log
    assert "Traceback" not in world.log
