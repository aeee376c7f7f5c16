"""Configuration that turns invalid while requests come: the last good one stays and it is said."""

from __future__ import annotations

import random
from typing import Any

from e2e.chaos.scale import is_full, seed
from fleetward_gateway.cluster.watches import guarded
from tests.support.broken_objects import broken
from tests.support.fake_engine import FakeEngine
from tests.support.gateway import GatewayUnderTest, b64, endpoint_slice, service, tenant


async def test_a_hundred_broken_objects_refuse_nobody(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    view = served.gateway.view
    ready = {"addresses": ["127.0.0.1"], "targetRef": {"kind": "Pod", "uid": "pod-s-0"}}
    slice_ = endpoint_slice("s-0", service="s", port=engine.port, endpoints=[ready])
    own = {"signing.pem": b64(served.signing.to_pem()), "digest.key": b64(b"d" * 32)}
    trust = {
        "operator.pub": served.operator.verify_key.to_b64(),
        "sealing.pub": served.sealing.public.to_b64(),
    }
    objects: tuple[tuple[Any, str, dict[str, Any]], ...] = (
        (view.on_tenant, "a", tenant("a")),
        (view.on_service, "apps/s", service("s")),
        (view.on_floors, "n/fleetward-floors", {"data": {"floors.json": '{"version":1}'}}),
        (view.on_trust, "n/fleetward-trust", {"data": trust}),
        (view.on_own_keys, "n/fleetward-gateway-keys", {"data": own}),
        (view.on_slice, "apps/s-0", slice_),
    )
    rng = random.Random(seed())  # noqa: S311 - what to break
    scrape = f"http://127.0.0.1:{served.gateway.scrape.port}/metrics"
    refused, unsaid = 0, []
    for _ in range(100 if is_full() else 60):
        callback, key, good = rng.choice(objects)
        change = guarded(callback, view, "watch of it")
        bad = broken(good, rng)
        change(key, good, bad)
        if not any(name == key for _, name in view.faults):
            unsaid.append((key, bad))
        async with served.post() as response:
            refused += response.status != 200
        async with served.session.get(scrape) as response:
            told = "fleetward_gateway_config_objects_invalid{" in await response.text()
        assert told == bool(view.faults)
        change(key, good, good)
        assert view.faults == {}
    assert refused == 0
    assert unsaid == []
