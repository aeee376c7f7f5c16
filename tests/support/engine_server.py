"""A whole engine process inside a test: real servers on ephemeral ports, the simulated runner."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from fleetward_api.admin import ADMIN_HEADER, ModelState, sign_admin_call
from fleetward_api.bundle import (
    BundlePush,
    Deletion,
    EpochSecret,
    PolicyBundle,
    Retention,
    ServiceRef,
)
from fleetward_api.canonical import canonical_bytes
from fleetward_api.floors import Floors
from fleetward_api.identity import (
    IDENTITY_HEADER,
    IdentityClaims,
    IdentityFloors,
    mint_identity,
)
from fleetward_api.keys import SealingKey, SigningKey
from fleetward_engine.config import EngineConfig
from fleetward_engine.engine import Engine
from fleetward_engine.factory import build_engine
from fleetward_engine.outputs import EngineStats
from fleetward_engine.server.assembly import Assembly, World, assemble
from fleetward_engine.server.listeners import Listeners, listen
from fleetward_engine.settings import Governance, Pod, Ports, ServeSettings
from tests.support.eventually import eventually

SERVICE_UID = "svc-uid-1"
POD_UID = "pod-uid-1"
MODEL = "demo"
BLOCK = 16
Build = Callable[[], tuple[Engine, ModelState]]


@dataclass(slots=True)
class Keys:
    """The operator's and the gateway's private keys."""

    operator: SigningKey = field(default_factory=SigningKey.generate)
    sealing: SealingKey = field(default_factory=SealingKey.generate)
    gateway: SigningKey = field(default_factory=SigningKey.generate)

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "operator.pub").write_text(self.operator.verify_key.to_b64() + "\n")
        (folder / "sealing.pub").write_text(self.sealing.public.to_b64())
        (folder / "gateway.pub").write_text(self.gateway.verify_key.to_b64())


@dataclass(slots=True)
class RunningEngine:
    """What a test needs of the process it talks to."""

    assembly: Assembly
    http: httpx.AsyncClient
    keys: Keys
    public_port: int
    admin_port: int
    metrics_port: int
    trust: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.public_port}"

    @property
    def stats(self) -> EngineStats:
        """The engine's last published numbers."""
        stats = self.assembly.service.stats()
        assert stats is not None
        return stats

    def identity(self, tenant: str = "a", **claims: Any) -> dict[str, str]:
        """Headers with a fresh identity; `floor` is the tenant's floor the gateway knew."""
        return {IDENTITY_HEADER: mint_identity(make_claims(tenant, **claims), self.keys.gateway)}

    async def chat(self, body: dict[str, Any], **claims: Any) -> httpx.Response:
        """One chat completion of a tenant."""
        whole = {"model": MODEL, "max_tokens": 4, **body}
        headers = self.identity(**claims)
        return await self.http.post(self.url + "/v1/chat/completions", json=whole, headers=headers)

    async def admin(
        self, method: str, path: str, body: object = None, /, **call: Any
    ) -> httpx.Response:
        """A signed admin call over TLS with the member's certificate pinned."""
        data = b"" if body is None else canonical_bytes(body)
        signed: dict[str, Any] = {
            "method": method,
            "path": path,
            "body": data,
            "pod_uid": POD_UID,
            "key": self.keys.operator,
            "now": time.time(),
            "request_id": uuid.uuid4().hex,
        }
        header = sign_admin_call(**{**signed, **call})
        return await self.raw_admin(method, path, data, {ADMIN_HEADER: header})

    async def raw_admin(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> httpx.Response:
        """An admin call with these headers only."""
        assert self.assembly.member is not None
        context = pinned(self.assembly.member.keys.certificate_pem)
        url = f"https://127.0.0.1:{self.admin_port}{path}"
        async with httpx.AsyncClient(verify=context, timeout=30) as http:
            return await http.request(method, url, content=body, headers=headers)

    async def cached_tokens(self, text: str, **claims: Any) -> int:
        """How much of the prompt came from the cache."""
        answer = await self.chat({"messages": [{"role": "user", "content": text}]}, **claims)
        assert answer.status_code == 200, answer.text
        return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


def pinned(certificate_pem: bytes) -> ssl.SSLContext:
    """Trust exactly one certificate."""
    context = ssl.create_default_context(cadata=certificate_pem.decode())
    context.check_hostname = True
    return context


def make_claims(tenant: str = "a", *, floor: int = 0, **claims: Any) -> IdentityClaims:
    now = int(time.time())
    base: dict[str, Any] = {
        "service_uid": SERVICE_UID,
        "tenant": tenant,
        "floors": IdentityFloors(tenant=floor),
        "request_id": uuid.uuid4().hex,
        "issued_at": now,
        "expires_at": now + 60,
    }
    return IdentityClaims(**{**base, **claims})


def bundle(generation: int = 1, **fields: Any) -> PolicyBundle:
    base: dict[str, Any] = {
        "service": ServiceRef(namespace="n", name="s", uid=SERVICE_UID),
        "generation": generation,
        "epoch": 1,
        "retention": Retention(),
        "deletion": Deletion(),
        "floors": Floors(),
    }
    return PolicyBundle(**{**base, **fields})


def push(generation: int = 1, *, secret: bytes | None = b"s" * 32, **fields: Any) -> BundlePush:
    made = bundle(generation, **fields)
    epoch = None if secret is None else EpochSecret.of(made.epoch, secret)
    return BundlePush(bundle=made, epoch=epoch)


def engine_config(folder: Path, *, step_ms: float = 0.5, **fields: Any) -> EngineConfig:
    """A small, fast simulation: blocks of 16 tokens, one byte a token."""
    profile = folder / "profile.json"
    profile.write_text(
        json.dumps(
            {
                "decode_step_ms": {"1": step_ms},
                "prefill_tokens_per_second": 1_000_000,
                "kv_bytes_per_token": 64,
                "max_model_len": 2048,
            }
        )
    )
    base: dict[str, Any] = {
        "model_uri": "package://none",
        "served_model_names": (MODEL, "alias"),
        "runner": "simulated",
        "block_size": BLOCK,
        "max_num_seqs": 16,
        "kv_cache_memory_bytes": 64 * BLOCK * 512,
        "simulation_profile": profile,
    }
    return EngineConfig(**{**base, **fields})


def serve_settings(
    folder: Path, config: EngineConfig, *, governed: bool = True, service_uid: str = SERVICE_UID
) -> ServeSettings:
    governance = Governance(
        pod=Pod(name="p", namespace="n", uid=POD_UID, ip="127.0.0.1"),
        service="n/s",
        service_uid=service_uid,
        trust_folder=folder / "trust",
        token_path=folder / "token",
    )
    return ServeSettings(
        engine=config,
        governance=governance if governed else None,
        ports=Ports(host="127.0.0.1", public=0, admin=0, metrics=0),
        drain_timeout_s=5.0,
        termination_log=folder / "termination-log",
        pid_file=folder / "pid",
    )


UNLIMITED = push()


@asynccontextmanager
async def running_engine(
    folder: Path,
    *,
    governed: bool = True,
    policy: BundlePush | None = UNLIMITED,
    build: Build | None = None,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
    loaded: bool = True,
    service_uid: str = SERVICE_UID,
    **config: Any,
) -> AsyncIterator[RunningEngine]:
    """Start the servers; ready to serve under `policy` (none: no bundle is pushed)."""
    keys = Keys()
    keys.write(folder / "trust")
    (folder / "token").write_text("service-account-token\n")
    made = engine_config(folder, **config)
    settings = serve_settings(folder, made, governed=governed, service_uid=service_uid)
    world = World(clock=clock, wall=wall, new_id=lambda: uuid.uuid4().hex)
    assembly = assemble(settings, build or (lambda: build_engine(made, clock)), world)
    listeners = Listeners()
    servers = [assembly.public, assembly.metrics]
    servers += [assembly.admin] if assembly.admin is not None else []
    sockets: list[socket.socket] = [listen("127.0.0.1", 0) for _ in servers]
    ports = [listeners.start(one, at) for one, at in zip(servers, sockets, strict=True)]
    assembly.service.loop.start()
    try:
        await eventually(lambda: all(one.started for one in servers))
        if loaded:
            await eventually(lambda: assembly.service.phase != "loading")
        async with httpx.AsyncClient(timeout=30) as http:
            engine = RunningEngine(
                assembly=assembly,
                http=http,
                keys=keys,
                public_port=ports[0],
                metrics_port=ports[1],
                admin_port=ports[2] if governed else 0,
                trust=folder / "trust",
            )
            if governed and policy is not None:
                answer = await engine.admin("PUT", "/policy", policy)
                assert answer.status_code == 200, answer.text
            yield engine
    finally:
        await listeners.stop()
        await asyncio.to_thread(assembly.service.loop.stop, timeout_s=10)
        if assembly.service.model is not None:
            assembly.service.model.close()
