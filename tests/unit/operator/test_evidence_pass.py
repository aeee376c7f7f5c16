"""What a look at the evidence asks of policies, services and purges before anything goes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from fleetward_api.chain_log import ChainHead
from fleetward_api.resources import CachePolicy, InferenceService
from fleetward_operator.core.policy import PolicyChoice
from fleetward_operator.core.purge.retention import Removal, RetainWatch
from fleetward_operator.edges.catalog import Invalid
from fleetward_operator.handlers.context import Operator
from fleetward_operator.handlers.evidence import PERIOD_S, reconcile_evidence

HOUR = 3600.0
GENESIS = ChainHead()


def policy(retain: str) -> CachePolicy:
    spec = {"deletion": {"evidence": {"retain": retain}}}
    metadata = {"name": "p", "namespace": "n"}
    return CachePolicy.model_validate({"metadata": metadata, "spec": spec})


def service() -> InferenceService:
    spec = {"model": {"name": "m", "source": "package://m"}}
    return InferenceService.model_validate({"metadata": {"name": "s"}, "spec": spec})


def config_map(name: str, *, uid: str = "") -> dict[str, Any]:
    previous = '{"payload":{"body":{"previous":{"sequence":%d,"digest":"%s"}}}}\n'
    labels = {"fleetward.io/purge-uid": uid} if uid else {}
    number = int(uid.removeprefix("p") or 0) - 1 if uid else 0
    digest = GENESIS.digest if number == 0 else f"sha256:{number:064x}"
    metadata = {"name": name, "labels": labels, "creationTimestamp": "1970-01-01T00:00:00Z"}
    return {"metadata": metadata, "data": {"evidence.jsonl": previous % (number, digest)}}


class World:
    """An operator's parts as far as a look needs them; `asked` are the plans made of heads."""

    def __init__(self) -> None:
        self.policies: dict[str, CachePolicy | Invalid] = {}
        self.services: dict[str, InferenceService | Invalid] = {}
        self.followed = ""
        self.purges: dict[str, dict[str, Any]] = {}
        self.maps = [config_map(f"fleetward-evidence-p{n}-0", uid=f"p{n}") for n in (1, 2, 3)]
        self.removals: list[Removal | None] = []
        self.now = 0.0
        kinds: dict[str, dict[str, Any]] = {
            "CachePolicy": self.policies,
            "InferenceService": self.services,
            "CachePurge": self.purges,
        }
        self.op = SimpleNamespace(
            retain=RetainWatch(),
            clock=SimpleNamespace(monotonic=lambda: self.now, wall=lambda: self.now),
            settings=SimpleNamespace(identity=SimpleNamespace(namespace="r")),
            store=SimpleNamespace(
                keys=lambda kind: list(kinds[kind]),
                get=lambda kind, key: kinds.get(kind, {}).get(key),
                in_namespace=lambda _kind, _namespace: list(self.maps),
            ),
            catalog=SimpleNamespace(policy=self.policies.get, service=self.services.get),
            fleet=SimpleNamespace(choice=lambda _: PolicyChoice(name=self.followed)),
            evidence=SimpleNamespace(expire=self._expire),
        )

    async def _expire(self, _items: Any, plan: Any) -> Removal | None:
        removal: Removal | None = plan(ChainHead(sequence=3, digest=f"sha256:{3:064x}"))
        self.removals.append(removal)
        return removal

    async def gone_at(self, hours: float) -> tuple[str, ...]:
        """What goes when the second of two looks is made so many hours after all was stored."""
        self.op.retain.forget()
        self.removals.clear()
        for self.now in (hours * HOUR - PERIOD_S, hours * HOUR):
            assert await reconcile_evidence(cast("Operator", self.op), "") == PERIOD_S
        removal = self.removals[-1] if self.removals else None
        return removal.purge_uids if removal else ()


async def test_the_default_counts_where_no_policy_is_and_where_a_service_follows_none() -> None:
    world = World()
    assert await world.gone_at(2159) == ()
    assert await world.gone_at(2161) == ("p1", "p2")
    world.policies["n/p"] = policy("1h")
    assert await world.gone_at(2) == ("p1", "p2")
    world.services["n/s"] = service()
    assert await world.gone_at(2) == ()
    world.followed = "p"
    assert await world.gone_at(2) == ("p1", "p2")
    world.services["n/t"] = Invalid("it follows who knows what")
    assert await world.gone_at(2) == ()


async def test_nothing_goes_while_a_policy_cannot_be_read() -> None:
    world = World()
    world.policies.update({"n/p": policy("1h"), "n/q": Invalid("unreadable")})
    assert await world.gone_at(9999) == ()


@pytest.mark.parametrize("phase", [None, "Pending", "Fencing", "Purging", "Verifying"])
async def test_the_evidence_of_a_purge_that_has_not_ended_stays(phase: str | None) -> None:
    world = World()
    world.purges["one"] = {"metadata": {"uid": "p2"}, "status": {"phase": phase}}
    assert await world.gone_at(2161) == ("p1",)
    world.purges["one"]["status"]["phase"] = "Completed"
    assert await world.gone_at(2161) == ("p1", "p2")


async def test_the_evidence_of_a_purge_that_has_not_been_told_stays() -> None:
    world = World()
    world.maps.append(config_map("fleetward-purge-p1"))
    assert await world.gone_at(2161) == ()
