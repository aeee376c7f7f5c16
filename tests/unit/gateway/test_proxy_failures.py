"""Engines that are gone, die or refuse: who is asked instead, and what the client is told."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.fake_engine import FakeEngine, replies
from tests.support.gateway import GatewayUnderTest
from tests.support.gateway_problem import problem


async def test_a_service_without_ready_engines_is_503_and_never_404(
    gateway: GatewayUnderTest,
) -> None:
    gateway.put_service()
    async with gateway.post() as response:
        assert response.status == 503
        assert 1 <= int(response.headers["retry-after"]) <= 60
        assert (await problem(response))["code"] == "no_replica_ready"


async def test_a_dead_engine_is_left_for_another_before_anything_was_sent(
    gateway: GatewayUnderTest, engine: FakeEngine, second_engine: FakeEngine
) -> None:
    gateway.put_service()
    gateway.put_engines(engine, second_engine)
    await engine.stop()
    for _ in range(6):
        async with gateway.post() as response:
            assert response.status == 200
    assert len(second_engine.requests) == 6
    assert gateway.gateway.dispatcher.load.in_flight == {}
    jtis = {headers["fleetward-identity"] for headers, _ in second_engine.requests}
    assert len(jtis) == 6


async def test_all_engines_dead_is_503_after_one_retry(
    gateway: GatewayUnderTest, engine: FakeEngine, second_engine: FakeEngine
) -> None:
    gateway.put_service()
    gateway.put_engines(engine, second_engine)
    await engine.stop()
    await second_engine.stop()
    async with gateway.post() as response:
        assert response.status == 503
        assert int(response.headers["retry-after"]) >= 1


async def test_an_engine_that_dies_with_the_request_is_not_given_it_twice(
    gateway: GatewayUnderTest, engine: FakeEngine, second_engine: FakeEngine
) -> None:
    async def dies(request: Any, body: bytes) -> Any:
        request.transport.abort()
        await asyncio.sleep(60)

    gateway.put_service()
    gateway.put_engines(engine, second_engine)
    engine.behaviour = second_engine.behaviour = dies
    async with gateway.post() as response:
        assert response.status == 503
        assert response.headers["retry-after"] == "1"
        assert (await problem(response))["code"] == "upstream_failed"
    assert len(engine.requests) + len(second_engine.requests) == 1


async def test_what_an_engine_refuses_reaches_the_client_in_shape(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    kept = {status: status for status in (400, 413, 422, 429, 500, 503, 504)}
    for status, seen in {**kept, 401: 503, 403: 503, 404: 503, 409: 503, 302: 503}.items():
        engine.behaviour = replies(status, {"detail": "not the shape"})
        async with served.post(allow_redirects=False) as response:
            assert (status, response.status) == (status, seen)
            error = await problem(response)
            assert "not the shape" not in error["message"]
            if seen in {429, 503}:
                assert 1 <= int(response.headers["retry-after"]) <= 60


async def test_an_engines_own_error_body_is_kept(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    error = {
        "message": "too long",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }
    engine.behaviour = replies(400, {"error": error})
    async with served.post() as response:
        assert response.status == 400
        assert await problem(response) == error


async def test_retry_after_of_an_engine_is_kept_in_bounds(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    for given, seen in {"7": "7", "900": "60", "0": "1", "soon": "1"}.items():
        engine.behaviour = replies(503, {}, **{"Retry-After": given})
        async with served.post() as response:
            assert (given, response.headers["retry-after"]) == (given, seen)
