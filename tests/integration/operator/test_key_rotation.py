"""The gateways' key is rotated in its Secret: services' engines are told, and nothing restarts."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from fleetward_api.keys import SigningKey
from fleetward_operator.edges.release_keys import GATEWAY_KEYS
from fleetward_operator.handlers import fleet
from fleetward_operator.manifests.trust import RELEASE_TRUST
from tests.support.operator_world import World, until

PUBLISHED = ("gateway.pub", "gateway-overlap.pub")


async def put_keys(world: World, **values: bytes | None) -> None:
    data = {
        f"{name}.pem": None if raw is None else base64.b64encode(raw).decode()
        for name, raw in values.items()
    }
    await world.patch("Secret", GATEWAY_KEYS, {"data": data}, namespace=world.release)


async def published(world: World) -> list[tuple[str, ...]]:
    """The gateways' public keys as the release and as the service's engines are told them."""
    release = await world.get("ConfigMap", RELEASE_TRUST, world.release)
    service = await world.get("ConfigMap", "demo-trust")
    data = [item.get("data", {}) for item in (release, service)]
    return [tuple(each[name] for name in PUBLISHED if name in each) for each in data]


async def test_keys_put_in_the_secret_reach_the_engines_of_every_service(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "KEYS_RECHECK_S", 0.2)
    async with world.operator():
        await world.service("demo")
        await until(lambda: world.pods("demo"), what="the pod")
        first = await world.get("Secret", GATEWAY_KEYS, world.release)
        old = SigningKey.from_pem(base64.b64decode(first["data"]["signing.pem"]))
        new = SigningKey.generate()
        before, after = old.verify_key.to_b64(), new.verify_key.to_b64()

        async def told(*keys: str) -> None:
            async def so() -> bool:
                return await published(world) == [keys, keys]

            await until(so, what=f"{len(keys)} published")

        await told(before)
        template = await pod_template(world)
        await put_keys(world, overlap=new.to_pem())
        await told(before, after)
        await put_keys(world, signing=new.to_pem(), overlap=old.to_pem())
        await told(after, before)
        await put_keys(world, overlap=b"spoilt")

        async def said() -> bool:
            events = await world.items("Event", world.release)
            return any(each["reason"] == "KeysUnreadable" for each in events)

        await until(said, what="the Event")
        assert await published(world) == [(after, before)] * 2
        await put_keys(world, overlap=None)
        await told(after)
        assert await pod_template(world) == template


async def pod_template(world: World) -> Any:
    return (await world.get("Deployment", "demo"))["spec"]["template"]
