"""A pass over a service that changes while its engines are told of their rules."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from fleetward_api.bundle import PolicyBundle
from fleetward_api.errors import FleetwardError
from fleetward_api.floors import Floors
from fleetward_operator.core.pods import PodSeen
from fleetward_operator.edges.bundles import EngineWords
from fleetward_operator.edges.executor import Outcome
from fleetward_operator.edges.fleet import Fleet
from fleetward_operator.handlers.context import Operator
from fleetward_operator.handlers.service import reconcile_service
from tests.support.operator_facts import CONFIG, NOW, pod, policy, service


async def test_a_service_that_changes_during_a_push_does_not_go_back_to_its_old_rules() -> None:
    known = service(cachePolicyRef={"name": "a"})
    pushed: list[PolicyBundle] = []

    async def push(_pod: PodSeen, bundle: PolicyBundle) -> None:
        """The engine is slow; meanwhile the service changes, and a purge makes its bundle."""
        nonlocal known
        pushed.append(bundle)
        if len(pushed) == 1:
            known = service(cachePolicyRef={"name": "b"}, generation=2)
            fleet.bundle(known)
        raise FleetwardError("it did not answer")

    async def nothing(*_: Any, **__: Any) -> None:
        return None

    async def executed(*_: Any, **__: Any) -> Outcome:
        return Outcome()

    policies = [policy("a"), policy("b", isolation="User")]
    store = SimpleNamespace(
        get=lambda kind, _: known.to_manifest() if kind == "InferenceService" else None,
        pods_of=lambda _: [pod("one")],
    )
    catalog = SimpleNamespace(
        service=lambda _: known,
        policies=lambda _: policies,
        invalid_policies=lambda _: (),
        rivals=lambda _: [],
    )
    fleet = Fleet(
        store=cast("Any", store),
        catalog=cast("Any", catalog),
        floors=cast("Any", SimpleNamespace(current=SimpleNamespace(floors=Floors()))),
        keys=cast("Any", None),
        epoch=cast("Any", SimpleNamespace(number=1)),
    )

    async def state(_pod: PodSeen) -> None:
        raise FleetwardError("it did not answer")

    op = SimpleNamespace(
        store=store,
        catalog=catalog,
        fleet=fleet,
        config=CONFIG,
        words=EngineWords(),
        push_retries={},
        executor=SimpleNamespace(execute=executed),
        events=SimpleNamespace(announce=nothing),
        statuses=SimpleNamespace(write=nothing),
        pusher=SimpleNamespace(push_engine=push),
        members=SimpleNamespace(state=state),
        enqueue=lambda *_: None,
        clock=SimpleNamespace(monotonic=lambda: 0.0, now=lambda: NOW),
        settings=SimpleNamespace(isolation_probe_interval_s=600.0),
    )
    await reconcile_service(cast("Operator", op), "apps/demo")
    last = fleet.ledger.last("uid-demo")
    assert last is not None
    assert (last.policy_name, last.generation) == ("b", 2)
