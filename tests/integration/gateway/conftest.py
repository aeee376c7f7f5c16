"""A gateway process beside a real API server, with the rights that the chart grants it."""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from e2e.cluster.apiserver import ApiServer
from e2e.cluster.binaries import ensure_binaries
from e2e.cluster.ports import free_port
from e2e.cluster.settings import read_settings
from e2e.cluster.steps import Steps
from fleetward_api.keys import SealingKey, SigningKey
from fleetward_kube import KubeClient
from fleetward_kube.client import APPLY
from tests.support.fake_engine import FakeEngine
from tests.support.own_address import own_address

REPOSITORY = Path(__file__).resolve().parents[3]
_KINDS = {
    "Namespace": "/api/v1/namespaces",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
    "Tenant": "/apis/fleetward.io/v1alpha1/tenants",
    "InferenceService": "/apis/fleetward.io/v1alpha1/namespaces/{}/inferenceservices",
}


def path_of(manifest: dict[str, Any]) -> str:
    metadata = manifest["metadata"]
    collection = _KINDS[manifest["kind"]].format(metadata.get("namespace", ""))
    return f"{collection}/{metadata['name']}"


def chart_rights(release: str, keys: str) -> list[dict[str, Any]]:
    """The gateway's account, roles and bindings as the chart writes them."""
    helm = ensure_binaries(read_settings(), steps=Steps()).helm
    rendered = subprocess.run(
        [
            *(str(helm), "template", "fleetward", str(REPOSITORY / "charts/fleetward")),
            *("--namespace", release, "--set", f"apiKeys.namespace={keys}"),
            *("--show-only", "templates/gateway/rbac.yaml"),
            *("--show-only", "templates/keynamespace.yaml"),
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [item for item in yaml.safe_load_all(rendered) if item and item["kind"] in _KINDS]


@dataclass(slots=True)
class World:
    """Fresh namespaces, an administrator's client, and the gateway of this test."""

    client: KubeClient
    session: aiohttp.ClientSession
    release: str
    keys: str
    apps: str
    kubeconfig: Path
    folder: Path
    port: int
    metrics_port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    signing: SigningKey = field(default_factory=SigningKey.generate)
    operator_key: SigningKey = field(default_factory=SigningKey.generate)
    sealing_key: SealingKey = field(default_factory=SealingKey.generate)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def apply(self, manifest: dict[str, Any]) -> None:
        await self.client.request(
            "PATCH",
            path_of(manifest),
            query={"fieldManager": "test", "force": "true"},
            body=manifest,
            content_type=APPLY,
        )

    async def delete(self, manifest: dict[str, Any]) -> None:
        await self.client.request("DELETE", path_of(manifest))

    @property
    def mark(self) -> str:
        """What sets the names of this world apart from those of others."""
        return self.release.rpartition("-")[2]

    def key_secret(self, name: str) -> str:
        """A Secret's name in the key namespace; Tenants of other worlds must not find it."""
        return f"{name}-{self.mark}"

    def secret(self, name: str, namespace: str, **values: bytes) -> dict[str, Any]:
        if namespace == self.keys:
            name = self.key_secret(name)
        data = {key.replace("_", "."): base64.b64encode(v).decode() for key, v in values.items()}
        metadata = {"namespace": namespace, "name": name}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}

    def config_map(self, name: str, **values: str) -> dict[str, Any]:
        data = {key.replace("_", "."): value for key, value in values.items()}
        metadata = {"namespace": self.release, "name": name}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}

    def operator_manifests(self) -> list[dict[str, Any]]:
        """What the operator makes, but for the floors."""
        own = self.secret(
            "fleetward-gateway-keys",
            self.release,
            signing_pem=self.signing.to_pem(),
            digest_key=b"d" * 32,
        )
        trust = self.config_map(
            "fleetward-trust",
            operator_pub=self.operator_key.verify_key.to_b64(),
            sealing_pub=self.sealing_key.public.to_b64(),
            gateway_pub=self.signing.verify_key.to_b64(),
        )
        return [own, trust]

    async def operator_objects(self) -> None:
        """Make what the operator makes, but for the floors."""
        for manifest in self.operator_manifests():
            await self.apply(manifest)

    def start(self) -> subprocess.Popen[bytes]:
        token = self.folder / "token"
        token.write_text("token")
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "POD_NAME": "gateway-0",
            "POD_NAMESPACE": self.release,
            "POD_UID": "uid-gateway",
            "POD_IP": "127.0.0.1",
            "FLEETWARD_KEY_NAMESPACE": self.keys,
            "FLEETWARD_TOKEN_FILE": str(token),
            "FLEETWARD_GATEWAY_HOST": "127.0.0.1",
            "FLEETWARD_GATEWAY_PORT": str(self.port),
            "FLEETWARD_GATEWAY_ADMIN_PORT": "0",
            "FLEETWARD_GATEWAY_METRICS_PORT": str(self.metrics_port),
            "FLEETWARD_GATEWAY_DRAIN_DELAY_SECONDS": "0.5",
        }
        with (self.folder / "gateway.log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fleetward_gateway"],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self.process

    @property
    def log(self) -> str:
        return (self.folder / "gateway.log").read_text()

    async def readiness(self) -> tuple[int, list[str]]:
        """Status and what is missing; (0, []) while nobody listens."""
        try:
            async with self.session.get(self.url + "/readyz") as response:
                return response.status, (await response.json())["missing"]
        except aiohttp.ClientError:
            return 0, []

    async def metrics(self) -> str:
        """What a scraper reads."""
        url = f"http://127.0.0.1:{self.metrics_port}/metrics"
        async with self.session.get(url) as response:
            return await response.text()

    async def until_ready(self) -> None:
        async with asyncio.timeout(60):
            while (await self.readiness())[0] != 200:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)

    async def until_waiting(self, word: str, *, alone: bool = False) -> None:
        """Until the gateway says that it waits for something (alone: for nothing else)."""
        async with asyncio.timeout(60):
            while True:
                _, missing = await self.readiness()
                if any(word in entry for entry in missing) and not (alone and len(missing) > 1):
                    return
                await asyncio.sleep(0.05)

    async def status(self, key: str, model: str) -> int:
        message = {"role": "user", "content": "x"}
        async with self.session.post(
            self.url + "/v1/chat/completions",
            json={"model": model, "messages": [message], "max_tokens": 1},
            headers={"Authorization": f"Bearer {key}"},
        ) as response:
            await response.read()
            return response.status

    async def until_status(self, status: int, *, key: str, model: str) -> None:
        async with asyncio.timeout(30):
            while await self.status(key, model) != status:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


@pytest.fixture
async def world(
    api_server: ApiServer, crds_installed: Path, tmp_path: Path
) -> AsyncIterator[World]:
    mark = secrets.token_hex(3)
    release, keys, apps = (f"{name}-{mark}" for name in ("release", "keys", "apps"))
    account = api_server.kubeconfig_for_service_account(release, "fleetward-gateway")
    async with (
        KubeClient.from_environment({"KUBECONFIG": str(crds_installed)}, patience_s=60) as client,
        aiohttp.ClientSession() as session,
    ):
        made = World(client, session, release, keys, apps, account, tmp_path, free_port())
        for name in (release, keys, apps):
            await made.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for manifest in chart_rights(release, keys):
            await made.apply(manifest)
        yield made
        made.stop()


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    """An engine at an address that an EndpointSlice may hold."""
    fake = FakeEngine(host=own_address())
    await fake.start()
    yield fake
    await fake.stop()
