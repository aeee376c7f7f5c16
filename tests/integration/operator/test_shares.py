"""Shares of the KV cache, from a CachePolicy to engines and back into a service's status."""

from __future__ import annotations

from fleetward_api.admin import KvHolding
from fleetward_api.bundle import PolicyBundle
from tests.support.operator_world import World, until


async def test_shares_reach_engines_live_and_holdings_the_status(world: World) -> None:
    async with world.operator():
        await world.create(
            {
                "apiVersion": "fleetward.io/v1alpha1",
                "kind": "CachePolicy",
                "metadata": {"name": "shares", "namespace": world.apps},
                "spec": {"namespaceDefault": True, "quota": {"maxSharePercent": 60}},
            }
        )
        await world.service("demo")
        pods = await until(lambda: world.pods("demo"), what="the pod")
        member = await world.run_pod(pods[0])
        # What an engine has cached by then is found the next time that it is asked.
        member.holdings = (
            KvHolding(tenant="acme", blocks=7, hits=3, oldest_age_ms=1000),
            KvHolding(tenant="beta", retention_class="short", blocks=20, hits=0, oldest_age_ms=0),
        )

        async def shares_are(largest: int, guaranteed: int) -> bool:
            bundle = member.bundle
            if not isinstance(bundle, PolicyBundle):
                return False
            quota = bundle.quota
            return (quota.max_share_percent, quota.guaranteed_share_percent) == (
                largest,
                guaranteed,
            )

        await until(lambda: shares_are(60, 0), what="the first bundle")
        quota = {"maxSharePercent": 50, "guaranteedSharePercent": 20}
        await world.patch("CachePolicy", "shares", {"spec": {"quota": quota}})
        await until(lambda: shares_are(50, 20), what="the second bundle")
        assert len(await world.pods("demo")) == 1

        async def told() -> dict[str, object]:
            status = (await world.get("InferenceService", "demo")).get("status", {})
            return dict(status.get("kvCache", {}))

        report = await until(told, within_s=90, what="the report")
        assert report["totalBlocks"] == 100
        assert report["holdings"] == [
            {
                "tenant": "beta",
                "retentionClass": "short",
                "blocks": 20,
                "bytes": 20 * 4096,
                "hits": 0,
                "oldest": report["holdings"][0]["oldest"],
            },
            {
                "tenant": "acme",
                "retentionClass": "",
                "blocks": 7,
                "bytes": 7 * 4096,
                "hits": 3,
                "oldest": report["holdings"][1]["oldest"],
            },
        ]
