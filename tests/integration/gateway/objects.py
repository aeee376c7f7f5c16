"""What a gateway process is given: a tenant, a service and an engine's address."""

from __future__ import annotations

from typing import Any

from tests.integration.gateway.conftest import World
from tests.support.fake_engine import FakeEngine

KEY_A, KEY_B = b"sk-a-0123456789abcdef", b"sk-b-0123456789abcdef"


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
