"""A cluster without nodes for tests of the operator: makes pods run by saying so."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.cluster.ports import free_port
from fleetward_api.keys import SealingPublicKey, VerifyKey
from fleetward_kube import KubeClient, KubeError
from fleetward_operator.edges.kinds import collection_path, object_path
from fleetward_operator.handlers.app import App
from fleetward_operator.settings import EngineRules, Identity, Ports, Settings, Timings
from tests.support.cluster_facts import IMAGE, running
from tests.support.fake_member import FakeMember

KINDS = ("CachePurge", "InferenceService", "CachePolicy", "Tenant")


@dataclass
class World:
    """Namespaces of one test, its members, and shorthand for the API server."""

    client: KubeClient
    kubeconfig: Path
    release: str
    apps: str
    keys: str
    admin_port: int
    members: dict[str, FakeMember] = field(default_factory=dict)
    _next_host: int = 2

    def settings(
        self,
        *,
        pod: str = "operator-0",
        timings: Timings | None = None,
        probe_every_s: float = 600.0,
    ) -> Settings:
        """What one replica of the operator reads."""
        health, metrics = free_port(), free_port()
        return Settings(
            identity=Identity(pod_name=pod, namespace=self.release, pod_uid=pod),
            key_namespace=self.keys,
            engine=EngineRules(
                default_image=IMAGE,
                images=(),
                namespaces=(self.apps,),
                pull_policy="IfNotPresent",
                scraper_namespaces=("monitoring",),
            ),
            gateway_url="http://gateway.test",
            isolation_probe_interval_s=probe_every_s,
            ports=Ports(health=health, metrics=metrics, member_admin=self.admin_port),
            timings=timings or Timings(lease_retry=0.2, member_timeout=3.0),
        )

    @asynccontextmanager
    async def operator(self, **kwargs: Any) -> AsyncIterator[App]:
        """A leading operator in this process."""
        app = App(
            self.settings(**kwargs),
            connect=lambda: KubeClient.from_environment({"KUBECONFIG": str(self.kubeconfig)}),
        )
        await app.start()
        try:
            yield app
        finally:
            await app.stop()

    async def get(self, kind: str, name: str, namespace: str | None = None) -> dict[str, Any]:
        """One object; empty when it is not there."""
        where = self.apps if namespace is None else namespace
        try:
            return await self.client.request("GET", object_path(kind, where, name))
        except KubeError as error:
            if error.not_found:
                return {}
            raise

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Create an object."""
        namespace = manifest["metadata"].get("namespace", "")
        path = collection_path(manifest["kind"], namespace)
        return await self.client.request("POST", path, body=manifest)

    async def patch(
        self,
        kind: str,
        name: str,
        patch: dict[str, Any],
        *,
        namespace: str | None = None,
        subresource: str = "",
        manager: str = "tests",
    ) -> dict[str, Any]:
        """Merge-patch an object, as somebody else."""
        where = self.apps if namespace is None else namespace
        return await self.client.request(
            "PATCH",
            object_path(kind, where, name, subresource=subresource),
            query={"fieldManager": manager},
            body=patch,
            content_type="application/merge-patch+json",
        )

    async def delete(self, kind: str, name: str, namespace: str | None = None) -> None:
        """Delete an object, if it is there."""
        where = self.apps if namespace is None else namespace
        try:
            await self.client.request("DELETE", object_path(kind, where, name))
        except KubeError as error:
            if not error.not_found:
                raise

    async def items(self, kind: str, namespace: str | None = None) -> list[dict[str, Any]]:
        """All objects of a kind in a namespace."""
        where = self.apps if namespace is None else namespace
        listing = await self.client.request("GET", collection_path(kind, where))
        return list(listing["items"])

    async def service(self, name: str, **spec: Any) -> dict[str, Any]:
        """Create an InferenceService on the simulated runner."""
        full: dict[str, Any] = {
            "model": {"name": name, "source": "package://demo"},
            "engine": {"runner": "Simulated"},
            "access": {"tenantSelector": {}},
        }
        manifest = {
            "apiVersion": "fleetward.io/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"name": name, "namespace": self.apps},
            "spec": {**full, **spec},
        }
        return await self.create(manifest)

    async def pods(self, service: str) -> list[dict[str, Any]]:
        """The pods that the controllers made for a service."""
        found = [
            pod
            for pod in await self.items("Pod")
            if pod["metadata"].get("labels", {}).get("fleetward.io/service") == service
        ]
        return sorted(found, key=lambda pod: pod["metadata"]["name"])

    async def run_pod(self, pod: dict[str, Any], *, ready: bool = True, **facts: Any) -> FakeMember:
        """Say that a pod runs, and be the engine or gateway in it, with these facts about it."""
        metadata = pod["metadata"]
        address = f"127.0.0.{self._next_host}"
        self._next_host += 1
        component = metadata["labels"]["app.kubernetes.io/component"]
        member = FakeMember(
            kind=component,
            pod_uid=metadata["uid"],
            token=await self.token(pod),
            address=address,
            port=self.admin_port,
            operator_key=VerifyKey.from_b64((await self.trust())["operator.pub"]),
            sealing_key=SealingPublicKey.from_b64((await self.trust())["sealing.pub"]),
            **facts,
        )
        await member.start()
        self.members[metadata["uid"]] = member
        await self.say(pod, running(address, ready=ready))
        return member

    async def say(self, pod: dict[str, Any], status: dict[str, Any]) -> None:
        """Write a pod's status as a kubelet would."""
        metadata = pod["metadata"]
        await self.patch(
            "Pod",
            metadata["name"],
            {"status": status},
            namespace=metadata["namespace"],
            subresource="status",
            manager="kubelet",
        )

    async def token(self, pod: dict[str, Any]) -> str:
        """A token bound to the pod, as its projected volume holds."""
        metadata = pod["metadata"]
        account = pod["spec"]["serviceAccountName"]
        path = object_path("ServiceAccount", metadata["namespace"], account, subresource="token")
        reference = {
            "kind": "Pod",
            "apiVersion": "v1",
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": ["fleetward-operator"], "boundObjectRef": reference},
        }
        return str((await self.client.request("POST", path, body=body))["status"]["token"])

    async def trust(self) -> dict[str, str]:
        """The release's public keys."""
        found = await self.get("ConfigMap", "fleetward-trust", self.release)
        return dict(found["data"])

    async def gateway_pod(self, name: str = "gateway-0") -> dict[str, Any]:
        """Create a gateway pod in the release namespace."""
        labels = {
            "app.kubernetes.io/component": "gateway",
            "app.kubernetes.io/part-of": "fleetward",
            "app.kubernetes.io/managed-by": "fleetward",
        }
        return await self.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": self.release, "labels": labels},
                "spec": {
                    "serviceAccountName": "default",
                    "containers": [{"name": "gateway", "image": "registry.test/gateway:1"}],
                },
            }
        )

    async def evidence(self, purge: dict[str, Any]) -> bytes:
        """The evidence that a purge's status names."""
        chunks = [
            (await self.get("ConfigMap", name, self.release))["data"]["evidence.jsonl"]
            for name in purge["status"]["evidenceConfigMaps"]
        ]
        return "".join(chunks).encode()

    async def let_go(self, kind: str, name: str) -> None:
        """Take every finalizer off a cluster-wide object, as docs/operator.md tells an admin to."""
        try:
            await self.patch(kind, name, {"metadata": {"finalizers": None}})
        except KubeError as error:
            if not error.not_found:
                raise

    async def sweep(self) -> None:
        """Remove all objects of our kinds in the whole cluster: an operator sees them all."""
        for kind in KINDS:
            for item in await self.items(kind, ""):
                metadata = item["metadata"]
                await self.delete(kind, metadata["name"], metadata.get("namespace", ""))
                if metadata.get("finalizers"):
                    # Nobody is left to purge a tenant.
                    await self.let_go(kind, metadata["name"])

    async def close(self) -> None:
        """End the members and remove what the test made in the whole cluster."""
        for member in self.members.values():
            await member.stop()
        await self.sweep()
        # What makes pods goes before the pods; bundles would tell the next test of our floors.
        for path in (
            f"/apis/apps/v1/namespaces/{self.apps}/deployments",
            f"/apis/apps/v1/namespaces/{self.apps}/replicasets",
            collection_path("ConfigMap", self.apps),
            collection_path("Pod", self.apps),
            collection_path("Pod", self.release),
        ):
            query = {"gracePeriodSeconds": "0", "propagationPolicy": "Background"}
            await self.client.request("DELETE", path, query=query)
        for pod in await self.items("Pod", ""):
            metadata = pod["metadata"]
            if metadata.get("finalizers"):
                await self.patch(
                    "Pod",
                    metadata["name"],
                    {"metadata": {"finalizers": None}},
                    namespace=metadata["namespace"],
                )
        for namespace in (self.apps, self.release, self.keys):
            # Some tests have deleted it themselves.
            with contextlib.suppress(KubeError):
                await self.client.request("DELETE", f"/api/v1/namespaces/{namespace}")

        async def no_pod_is_left() -> bool:
            ours = "app.kubernetes.io/part-of=fleetward"
            listing = await self.client.request(
                "GET", collection_path("Pod"), query={"labelSelector": ours}
            )
            return not listing["items"]

        # A pod that outlives its test would be a member of the next test's purge.
        await until(no_pod_is_left, within_s=60, what="the end of all pods")


async def until(
    look: Callable[[], Awaitable[Any]], *, within_s: float = 30.0, what: str = "it"
) -> Any:
    """The first true answer of `look`; generous, so that only a hang can reach the limit."""
    deadline = time.monotonic() + within_s
    while True:
        found = await look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {within_s} s: {found!r}")
        await asyncio.sleep(0.05)
