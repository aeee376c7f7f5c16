"""A pass over a service's probes: what changed while an engine was asked counts."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from fleetward_api.floors import Floors
from fleetward_api.isolation_probe import ProbeOrder, ProbeReport
from fleetward_api.resources import InferenceService
from fleetward_operator.core.observed import Ack
from fleetward_operator.core.pods import PodSeen
from fleetward_operator.edges.bundles import EngineWords
from fleetward_operator.edges.fleet import Fleet
from fleetward_operator.edges.metrics import Metrics
from fleetward_operator.handlers.context import Operator
from fleetward_operator.handlers.isolation import reconcile_isolation
from tests.support.operator_facts import NOW, pod, policy, service

KEY = "apps/demo"
PROVED_AT = "fleetward_operator_isolation_probe_last_success_timestamp_seconds"


class Stage:
    """An operator of one service with one engine, as far as probes go.

    `asked` is called while the engine is at its probe; those named in `busy` have no room for one.
    """

    def __init__(self) -> None:
        self.service: InferenceService | None = service(cachePolicyRef={"name": "a"})
        self.pods = [pod("one", ready=True)]
        self.busy: set[str] = set()
        self.wall = NOW.timestamp()
        self.metrics = Metrics()
        self.asked: Callable[[], object] = lambda: None
        policies = [policy("a"), policy("b", isolation="User")]
        store = SimpleNamespace(get=lambda *_: None, pods_of=lambda _: self.pods)
        catalog = SimpleNamespace(
            service=lambda _: self.service,
            policies=lambda _: policies,
            invalid_policies=lambda _: (),
            rivals=lambda _: [],
        )
        floors = SimpleNamespace(current=SimpleNamespace(floors=Floors()))
        self.fleet = Fleet(
            store=cast("Any", store),
            catalog=cast("Any", catalog),
            floors=cast("Any", floors),
            keys=cast("Any", None),
            epoch=cast("Any", SimpleNamespace(number=1)),
        )
        self.words = EngineWords()
        self.op = cast(
            "Operator",
            SimpleNamespace(
                catalog=catalog,
                store=store,
                fleet=self.fleet,
                words=self.words,
                metrics=self.metrics,
                members=SimpleNamespace(probe_isolation=self._probe),
                enqueue=lambda *_: None,
                clock=SimpleNamespace(
                    monotonic=lambda: 0.0, wall=lambda: self.wall, now=lambda: NOW
                ),
                settings=SimpleNamespace(
                    isolation_probe_interval_s=600.0,
                    timings=SimpleNamespace(isolation_probe=5.0),
                ),
            ),
        )

    def ack(self) -> None:
        """The engine has the bundle that its service is to have."""
        assert self.service is not None
        bundle = self.fleet.bundle(self.service)
        assert bundle is not None
        for one in self.pods:
            self.words.acks[one.uid] = Ack(generation=bundle.generation, digest=bundle.digest)

    @property
    def proved_at(self) -> float | None:
        """What the metric tells."""
        return self.metrics.registry.get_sample_value(PROVED_AT, {"inferenceservice": KEY})

    async def _probe(self, asked: PodSeen, _order: ProbeOrder) -> ProbeReport:
        assert self.service is not None
        bundle = self.fleet.bundle(self.service)
        assert bundle is not None
        self.asked()
        looks: Any = [
            {"identity": "itself", "may_reuse": True, "cached_tokens": 32},
            {"identity": "another tenant", "may_reuse": False, "cached_tokens": 0},
        ]
        return ProbeReport(
            pod_uid=asked.uid,
            bundle_digest=bundle.digest,
            not_run="Busy" if asked.name in self.busy else "",
            prompt_tokens=33,
            looks=looks,
        )


async def test_a_service_that_changes_during_a_probe_does_not_go_back_to_its_old_rules() -> None:
    stage = Stage()
    stage.ack()

    def change() -> None:
        stage.service = service(cachePolicyRef={"name": "b"})
        stage.fleet.bundle(stage.service)

    stage.asked = change
    await reconcile_isolation(stage.op, KEY)
    last = stage.fleet.ledger.last("uid-demo")
    assert last is not None
    assert (last.policy_name, last.generation) == ("b", 2)


async def test_a_service_that_is_deleted_during_a_probe_leaves_no_series() -> None:
    stage = Stage()
    stage.ack()

    def delete() -> None:
        stage.service = None

    stage.asked = delete
    assert await reconcile_isolation(stage.op, KEY) is None
    assert stage.proved_at is None


async def test_a_service_without_engines_has_no_proof_that_grows_old() -> None:
    stage = Stage()
    stage.ack()
    assert await reconcile_isolation(stage.op, KEY) == 600.0
    assert stage.proved_at == NOW.timestamp()
    stage.pods = []
    assert await reconcile_isolation(stage.op, KEY) is None
    assert stage.proved_at is None


async def test_an_engine_that_was_never_proved_is_not_hidden_by_one_that_is() -> None:
    stage = Stage()
    stage.ack()
    await reconcile_isolation(stage.op, KEY)
    stage.pods.append(pod("two", ready=True))
    stage.busy.add("two")
    stage.ack()
    stage.wall += 100
    stage.words.probes.pop("uid-one")
    await reconcile_isolation(stage.op, KEY)
    assert stage.proved_at == NOW.timestamp()
    stage.busy.clear()
    stage.words.probes.clear()
    await reconcile_isolation(stage.op, KEY)
    assert stage.proved_at == NOW.timestamp() + 100
