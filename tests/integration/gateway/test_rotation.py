"""Keys rotated under streams, with the real operator, API server, gateway process and engine."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from e2e.chaos.scale import is_full
from e2e.cluster.ports import free_port
from e2e.figures.record import record
from fleetward_api.bundle import ServiceRef
from fleetward_api.identity import IDENTITY_HEADER, mint_identity
from fleetward_api.keys import SigningKey
from fleetward_operator.edges.release_keys import GATEWAY_KEYS
from fleetward_operator.handlers import fleet
from tests.integration.gateway.conftest import World
from tests.integration.gateway.objects import KEY_A, Objects
from tests.support.client_streams import CHAT, Streams, streaming
from tests.support.engine_server import (
    MODEL,
    RunningEngine,
    make_claims,
    push,
    running_engine,
)
from tests.support.kubelet_mount import KubeletMount
from tests.support.operator_world import World as OperatorWorld
from tests.support.operator_world import until
from tests.support.own_address import own_address
from tests.support.tcp_proxy import TcpProxy

NEXT_A = b"sk-a-next-0123456789abcdef"
WITHIN_S = 60.0
HANDOVER_S = 2.0
"""Ample for requests that were sent with the old key to be judged."""


@dataclass(slots=True)
class Stage:
    """The parts, and how a test turns the gateways' key."""

    operator: OperatorWorld
    engine: RunningEngine
    mount: KubeletMount
    service_uid: str
    model: str
    heard: list[bytes] = field(default_factory=list)

    async def keep_mounted(self) -> None:
        """Be the kubelet of the engine's pod, without its minute of delay."""
        data: dict[str, str] = {}
        while True:
            found = (await self.operator.get("ConfigMap", "svc-trust")).get("data", {})
            if found and found != data:
                data = found
                self.mount.put(data)
            await asyncio.sleep(0.2)

    async def mounted(self) -> bool:
        """Whether the engine's trust is the operator's."""
        return bool(self.mount.entries)

    async def signing(self) -> SigningKey:
        secret = await self.operator.get("Secret", GATEWAY_KEYS, self.operator.release)
        return SigningKey.from_pem(base64.b64decode(secret["data"]["signing.pem"]))

    async def put(self, **values: SigningKey | None) -> None:
        data = {
            f"{name}.pem": None if key is None else base64.b64encode(key.to_pem()).decode()
            for name, key in values.items()
        }
        patch = {"data": data}
        await self.operator.patch("Secret", GATEWAY_KEYS, patch, namespace=self.operator.release)

    async def takes(self, key: SigningKey) -> bool:
        """Whether the engine takes an identity of this key."""
        headers = {IDENTITY_HEADER: self.token(key)}
        body = {"model": self.model, "messages": [{"role": "user", "content": "x"}]}
        answer = await self.engine.http.post(
            self.engine.url + CHAT, json={**body, "max_tokens": 1}, headers=headers
        )
        if answer.status_code != 200:
            assert answer.json()["error"]["code"] == "identity_forged"
        return answer.status_code == 200

    def token(self, key: SigningKey) -> str:
        return mint_identity(make_claims(service_uid=self.service_uid), key)

    def mark(self, key: SigningKey) -> bytes:
        """How every token of a key begins: its header names the key."""
        return self.token(key).partition(".")[0].encode()

    def signed_by(self, key: SigningKey) -> int:
        """How many requests came to the engine in the name of a key since they were cleared."""
        return sum(self.mark(key) in piece for piece in self.heard)

    async def rotate(self) -> list[float]:
        """Seconds until each of the three steps was in force; see docs/operator.md."""
        old, new = await self.signing(), SigningKey.generate()
        assert [await self.takes(key) for key in (old, new)] == [True, False]

        async def new_taken() -> bool:
            return await self.takes(new)

        async def new_used() -> bool:
            return self.signed_by(new) > 0

        async def old_refused() -> bool:
            return not await self.takes(old)

        announced = await timed(self.put(overlap=new), new_taken)
        self.heard.clear()
        swapped = await timed(self.put(signing=new, overlap=old), new_used)
        assert await self.takes(old)
        self.heard.clear()
        removed = await timed(self.put(overlap=None), old_refused)
        assert await self.takes(new)
        await until(new_used, what="a request after that")
        assert self.signed_by(old) == 0
        return [announced, swapped, removed]


async def timed(change: Awaitable[object], seen: Callable[[], Awaitable[bool]]) -> float:
    """Seconds from before a change until it is seen."""
    began = time.monotonic()
    await change
    await until(seen, within_s=WITHIN_S, what="the change")
    return time.monotonic() - began


@pytest.fixture
async def operator(world: World, crds_installed: Path) -> AsyncIterator[OperatorWorld]:
    """The gateway's release as its operator's tests see it; no operator runs yet."""
    made = OperatorWorld(
        client=world.client,
        kubeconfig=crds_installed,
        release=world.release,
        apps=world.apps,
        keys=world.keys,
        admin_port=free_port(),
    )
    yield made
    await made.close()


@pytest.fixture
async def stage(
    world: World, operator: OperatorWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Stage]:
    if not is_full():
        monkeypatch.setattr(fleet, "KEYS_RECHECK_S", 0.5)
    objects = Objects(world)
    await world.apply(world.secret("key-a", world.keys, key=KEY_A))
    await world.apply(objects.tenant("a"))
    await world.apply(objects.service("a"))
    uid = (await operator.get("InferenceService", "svc"))["metadata"]["uid"]
    folder = tmp_path / "engine"
    folder.mkdir()
    policy = push(service=ServiceRef(namespace=world.apps, name="svc", uid=uid))
    async with running_engine(
        folder,
        policy=policy,
        service_uid=uid,
        step_ms=5.0,
        served_model_names=(objects.model, MODEL),
    ) as engine:
        heard: list[bytes] = []
        proxy = TcpProxy(engine.public_port, host=own_address(), heard=heard.append)
        await proxy.mend()
        made = Stage(operator, engine, KubeletMount(engine.trust), uid, objects.model, heard)
        kubelet = asyncio.create_task(made.keep_mounted())
        try:
            await world.apply(slice_of(objects, proxy))
            # After the engine, whose start may hold up this process for longer than a lease.
            async with operator.operator():
                await until(made.mounted, within_s=120, what="the engine's trust")
                world.start()
                await world.until_ready()
                await world.until_status(200, key=KEY_A.decode(), model=objects.model)
                yield made
        finally:
            world.stop()
            kubelet.cancel()
            await asyncio.gather(kubelet, return_exceptions=True)
            await proxy.cut()


def slice_of(objects: Objects, proxy: TcpProxy) -> dict[str, Any]:
    """The slice of one engine behind the proxy."""
    endpoint = {
        "addresses": [own_address()],
        "conditions": {"ready": True},
        "targetRef": {"kind": "Pod", "uid": "pod-1"},
    }
    labels = {"fleetward.io/service": "svc", "app.kubernetes.io/component": "engine"}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"namespace": objects.world.apps, "name": "svc-1", "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": proxy.port, "protocol": "TCP"}],
        "endpoints": [endpoint],
    }


async def test_keys_are_rotated_under_streams(world: World, stage: Stage) -> None:
    """The gateways' key, then a tenant's: no stream is dropped, and the old ones open nothing."""
    process = world.process
    streams = Streams(world.session, world.url, model=stage.model, key=KEY_A.decode())
    took: list[float] = []
    async with streaming(streams, 12 if is_full() else 6):
        for _ in range(5 if is_full() else 1):
            took += await stage.rotate()
        took += await rotate_api_key(world, stage, streams)
    assert world.process is process
    assert process is not None
    assert process.poll() is None
    if is_full():
        record("rotation-seconds", max(took), f"of {len(took)} steps, without the kubelet's delay")
        record("rotation-dropped-streams", len(streams.dropped), f"of {streams.whole}")
    assert streams.dropped == []
    assert streams.whole > 0
    assert max(took) <= WITHIN_S


async def rotate_api_key(world: World, stage: Stage, streams: Streams) -> list[float]:
    """A second key beside the first, then the first taken away."""
    old, new = KEY_A.decode(), NEXT_A.decode()
    tenant = Objects(world).tenant("a")
    entries = tenant["spec"]["apiKeys"]
    entries.append({"name": "next", "secretRef": {"name": world.key_secret("key-a-next")}})

    async def status(key: str) -> int:
        return await world.status(key, stage.model)

    async def new_works() -> bool:
        return await status(new) == 200

    async def old_refused() -> bool:
        return await status(old) == 401

    async def announce() -> None:
        await world.apply(world.secret("key-a-next", world.keys, key=NEXT_A))
        await world.apply(tenant)

    assert await status(new) == 401
    announced = await timed(announce(), new_works)
    assert await status(old) == 200
    streams.key = new
    # What was sent with the old key has been judged by the time that the engine runs it.
    await asyncio.sleep(HANDOVER_S)
    entries.pop(0)
    removed = await timed(world.apply(tenant), old_refused)
    assert await status(new) == 200
    return [announced, removed]
