"""What a service's status tells of its engines' memory."""

from __future__ import annotations

from fleetward_api.admin import MemberState, MemoryState, ModelState
from fleetward_api.resources import InferenceServiceStatus
from fleetward_operator.core.observed import ServiceObserved
from fleetward_operator.core.service_plan import plan_service
from tests.support.operator_facts import CONFIG, NOW, deployment, observed, pod, service

BUDGET = MemoryState(
    available_bytes=1000, weights_bytes=300, activations_bytes=100, kv_bytes=500, runtime_bytes=50,
    margin_bytes=50,
)  # fmt: skip


def status_of(seen: ServiceObserved) -> InferenceServiceStatus:
    return plan_service(seen, config=CONFIG, now=NOW).status


def seen_with(memory: MemoryState | None) -> ServiceObserved:
    one = pod("one", ready=True)
    model = ModelState(model_digest="sha256:aa", engine_version="1", memory=memory)
    state = MemberState(kind="engine", pod_uid=one.uid, model=model)
    live = deployment(wanted=1, updated=1, total=1)
    return observed(pods=(one,), live=live, states={one.uid: state})


def test_the_budget_of_the_oldest_engine_is_told() -> None:
    memory = status_of(seen_with(BUDGET)).memory
    assert memory is not None
    assert memory.available_bytes == 1000
    assert [(part.name, part.bytes) for part in memory.parts] == [
        *(("weights", 300), ("activations", 100), ("kv", 500), ("runtime", 50), ("margin", 50)),
    ]


def test_a_simulation_has_none() -> None:
    assert status_of(seen_with(None)).memory is None


def test_the_last_budget_stays_true_of_an_idle_service() -> None:
    told = status_of(seen_with(BUDGET))
    idle = service().model_copy(update={"status": told})
    assert status_of(observed(idle)).memory == told.memory
