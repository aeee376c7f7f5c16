"""Who goes first in an engine: what a Tenant says, and the deadline that a client may set."""

from __future__ import annotations

import pytest

from fleetward_api.identity import IdentityClaims, verify_identity
from fleetward_gateway.admission.deadline import HEADER, MAX_MS, read_deadline, remaining_ms
from fleetward_gateway.problem import Problem
from tests.support.fake_engine import FakeEngine
from tests.support.gateway import GatewayUnderTest, tenant
from tests.support.gateway_problem import problem

BAD = ["0", "-5", "1.5", "1e3", "soon", "5, 5", str(MAX_MS + 1), "9" * 400, "٣"]


def test_it_counts_from_the_requests_head() -> None:
    assert read_deadline(b"", began=7.0) is None
    assert read_deadline(b"1500", began=7.0) == 8.5
    assert remaining_ms(8.5, now=8.0) == 500
    assert remaining_ms(None, now=8.0) == 0


@pytest.mark.parametrize("value", BAD)
def test_anything_else_is_refused_by_name(value: str) -> None:
    with pytest.raises(Problem) as refusal:
        read_deadline(value.encode(), began=0.0)
    assert (refusal.value.status, refusal.value.param) == (400, HEADER)


@pytest.mark.parametrize("now", [8.4999, 8.5, 9.0])
def test_one_that_has_passed_is_not_worth_another_try(now: float) -> None:
    with pytest.raises(Problem) as late:
        remaining_ms(8.5, now=now)
    assert (late.value.status, late.value.code) == (504, "deadline_exceeded")
    assert (b"x-should-retry", b"false") in late.value.extra_headers()


def claims_told(gateway: GatewayUnderTest, engine: FakeEngine) -> list[IdentityClaims]:
    """What the engine was told of each request's caller."""
    return [
        verify_identity(
            headers["fleetward-identity"],
            gateway.signing.verify_key,
            service_uid="uid-apps-s",
            now=0,
            leeway=1e12,
        )
        for headers, _ in engine.requests
    ]


async def test_the_engine_learns_what_is_left_and_whose_request_it_is(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    async with served.post(headers={HEADER: "60000"}) as response:
        assert response.status == 200
    async with served.post() as response:
        assert response.status == 200
    limited, unlimited = claims_told(served, engine)
    assert 0 < limited.deadline_ms <= 60_000
    assert unlimited.deadline_ms == 0
    assert HEADER.lower() not in engine.requests[0][0]


async def test_the_engine_learns_the_tenants_weight_and_priority_as_they_are_now(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    for weight, priority in ((1, 0), (3, -7)):
        changed = tenant("a", weight=weight, priority=priority)
        served.gateway.view.on_tenant("a", None, changed)
        async with served.post(headers={"priority": "99"}) as response:
            assert response.status == 200
    claims = claims_told(served, engine)
    assert [(each.weight, each.priority) for each in claims] == [(1, 0), (3, -7)]


async def test_a_bad_one_never_reaches_an_engine(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    async with served.post(headers={HEADER: "soon"}) as response:
        assert response.status == 400
        assert (await problem(response))["param"] == HEADER
    assert engine.requests == []
