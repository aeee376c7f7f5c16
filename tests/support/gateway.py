"""A whole gateway in this process, its view of the cluster filled by the test."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp

from fleetward_api.keys import SealingKey, SigningKey
from fleetward_gateway.admission.keyring import KeyHasher
from fleetward_gateway.cluster.trim import trim_key_secret
from fleetward_gateway.program import Gateway
from fleetward_gateway.proxy.upstream import Upstream
from fleetward_gateway.server.listener import Listener
from fleetward_gateway.settings import Bounds, Pod, Ports, Settings
from fleetward_kube import KubeClient
from fleetward_kube.connection import Connection
from tests.support.eventually import eventually
from tests.support.fake_engine import FakeEngine

KEY_A = "sk-tenant-a-0123456789abcdef"
KEY_B = "sk-tenant-b-0123456789abcdef"
DIGEST_KEY = b"d" * 32


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def tenant(
    name: str, *, secret: str = "", created: str = "2026-01-01T00:00:00Z", **spec: Any
) -> dict[str, Any]:
    keys = [{"name": "main", "secretRef": {"name": secret or f"{name}-key"}}]
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": created,
            "labels": {"tenant": name},
        },
        "spec": {"apiKeys": keys, **spec},
    }


def key_secret(name: str, key: str) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "fleetward-keys", "name": name},
        "data": {"key": b64(key.encode())},
    }


def service(
    name: str,
    *,
    model: str = "m",
    tenants: tuple[str, ...] = ("a",),
    created: str = "2026-01-01T00:00:00Z",
    namespace: str = "apps",
    uid: str = "",
    **spec: Any,
) -> dict[str, Any]:
    selector = {"matchExpressions": [{"key": "tenant", "operator": "In", "values": list(tenants)}]}
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": uid or f"uid-{namespace}-{name}",
            "creationTimestamp": created,
        },
        "spec": {
            "model": {"name": model, "source": "package://demo"},
            "access": {"tenantSelector": selector} if tenants else {},
            **spec,
        },
    }


def endpoint_slice(
    name: str, *, service: str, port: int, endpoints: list[dict[str, Any]], namespace: str = "apps"
) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "labels": {
                "fleetward.io/service": service,
                "app.kubernetes.io/component": "engine",
            },
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
        "endpoints": endpoints,
    }


class GatewayUnderTest:
    """A running gateway, its keys, and a client of its public port."""

    def __init__(
        self, gateway: Gateway, session: aiohttp.ClientSession, signing: SigningKey | None
    ) -> None:
        self.gateway = gateway
        self.session = session
        self.signing = signing or SigningKey.generate()
        self.operator = SigningKey.generate()
        self.sealing = SealingKey.generate()
        self._hasher: KeyHasher = gateway.gate._hasher
        self._slices = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gateway.public.port}"

    def fill(self) -> None:
        """Two tenants with their keys, trust, floors; no service yet."""
        view = self.gateway.view
        for informer in self.gateway.watches.informers.values():
            informer.synced.set()
        for name, key in (("a", KEY_A), ("b", KEY_B)):
            view.on_tenant(name, None, tenant(name))
            self.put_secret(f"{name}-key", key)
        view.on_floors("n/fleetward-floors", None, {"data": {"floors.json": '{"version":1}'}})
        trust = {
            "operator.pub": self.operator.verify_key.to_b64(),
            "sealing.pub": self.sealing.public.to_b64(),
            "gateway.pub": self.signing.verify_key.to_b64(),
        }
        view.on_trust("n/fleetward-trust", None, {"data": trust})
        own = {"signing.pem": b64(self.signing.to_pem()), "digest.key": b64(DIGEST_KEY)}
        view.on_own_keys("n/fleetward-gateway-keys", None, {"data": own})

    def put_secret(self, name: str, key: str) -> None:
        trimmed = trim_key_secret(self._hasher)(key_secret(name, key))
        self.gateway.view.on_secret(f"fleetward-keys/{name}", None, trimmed)

    def put_service(self, name: str = "s", **options: Any) -> None:
        item = service(name, **options)
        key = f"{item['metadata']['namespace']}/{name}"
        self.gateway.view.on_service(key, None, item)

    def put_engines(self, *engines: FakeEngine, service: str = "s") -> None:
        """Each engine gets a slice of its own, since the ports differ."""
        self.put_ports(*(engine.port for engine in engines), service=service)

    def put_ports(self, *ports: int, service: str = "s") -> None:
        """Engines on 127.0.0.1."""
        for number, port in enumerate(ports):
            name = f"{service}-{number}"
            target = {"kind": "Pod", "uid": f"pod-{name}"}
            ready = {"addresses": ["127.0.0.1"], "targetRef": target}
            item = endpoint_slice(name, service=service, port=port, endpoints=[ready])
            self.gateway.view.on_slice(f"apps/{name}", None, item)

    def post(
        self,
        body: object = None,
        *,
        key: str = KEY_A,
        path: str = "/v1/chat/completions",
        **options: Any,
    ) -> Any:
        headers = {"Authorization": f"Bearer {key}", **options.pop("headers", {})}
        if isinstance(body, bytes):
            headers.setdefault("Content-Type", "application/json")
            # A stream, since the client warns of large bodies that are bytes.
            options["data"] = io.BytesIO(body)
        else:
            options["json"] = {"model": "m"} if body is None else body
        return self.session.post(self.url + path, headers=headers, **options)


def settings(folder: Path, bounds: Bounds) -> Settings:
    token = folder / "token"
    token.write_text("service-account-token\n")
    return Settings(
        pod=Pod("gateway-0", "fleetward-system", "uid-gateway-0", "127.0.0.1"),
        key_namespace="fleetward-keys",
        ports=Ports("127.0.0.1", 0, 0, 0),
        bounds=bounds,
        token_file=token,
    )


async def cut_off(listener: Listener) -> None:
    """Stop at once; the orderly way, which waits, has a test of its own."""
    for server in listener.servers:
        server.close()
    for connection in list(listener.server_state.connections):
        connection.transport.abort()
    running = list(listener.server_state.tasks)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


@asynccontextmanager
async def gateway_under_test(
    folder: Path, *, signing: SigningKey | None = None, **bounds: float
) -> AsyncIterator[GatewayUnderTest]:
    """Run a gateway without a cluster behind it; `signing` is a key that an engine trusts."""
    config = settings(folder, replace(Bounds(), **bounds))  # type: ignore[arg-type]
    client = KubeClient(Connection("http://127.0.0.1:1"))
    async with (
        Upstream(first_byte_s=config.bounds.first_byte_s) as upstream,
        aiohttp.ClientSession() as session,
    ):
        gateway = Gateway(config, client, upstream)
        listeners = (gateway.public, gateway.admin, gateway.scrape)
        tasks = [asyncio.create_task(listener.serve()) for listener in listeners]
        await eventually(lambda: all(listener.started for listener in listeners))
        under_test = GatewayUnderTest(gateway, session, signing)
        under_test.fill()
        try:
            yield under_test
        finally:
            await session.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for listener in listeners:
                await cut_off(listener)
