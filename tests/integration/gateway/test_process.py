"""The gateway process on a real API server: what it waits for, follows and forgets."""

from __future__ import annotations

import asyncio
import signal
import time

from fleetward_api.identity import IdentityClaims, verify_identity
from tests.integration.gateway.conftest import World
from tests.integration.gateway.objects import KEY_A, KEY_B, Objects, ready_world
from tests.support.eventually import eventually
from tests.support.fake_engine import FakeEngine, events

FIRST, SECOND = b'data: {"n":1}\n\n', b'data: {"n":2}\n\n'
DONE = b"data: [DONE]\n\n"


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
