"""Requests through a running gateway to engines that are real HTTP servers."""

from __future__ import annotations

import asyncio
import time

import pytest

from fleetward_api.floors import Floors
from fleetward_api.identity import verify_identity
from tests.support.eventually import eventually
from tests.support.fake_engine import FakeEngine, hangs, replies
from tests.support.gateway import KEY_A, GatewayUnderTest, tenant
from tests.support.gateway_problem import problem


async def test_the_body_arrives_byte_for_byte_and_the_answer_comes_back(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    body = b'{ "model" : "m", "messages": [{"content":"\xc3\xa4 \\u00e4"}] }'
    for path in ("/v1/chat/completions", "/v1/completions"):
        async with served.post(body, path=path) as response:
            assert response.status == 200
            assert await response.json() == {"ok": True, "size": len(body)}
    assert [sent for _, sent in engine.requests] == [body, body]


async def test_the_identity_is_signed_fresh_and_says_who_and_what_for(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    served.gateway.view.raise_floors(Floors(version=7, tenants={"a": 3, "b": 9}))
    for _ in range(2):
        async with served.post() as response:
            assert response.status == 200
    claims = [
        verify_identity(
            headers["fleetward-identity"],
            served.signing.verify_key,
            service_uid="uid-apps-s",
            now=time.time(),
        )
        for headers, _ in engine.requests
    ]
    assert claims[0].tenant == "a"
    assert claims[0].tenant_uid
    assert claims[0].floors.as_tuple() == (3, 0, 0, 0)
    assert (claims[0].user, claims[0].retention_class, claims[0].weight) == ("", "", 1)
    assert claims[0].expires_at - claims[0].issued_at == 60
    assert claims[0].request_id != claims[1].request_id


async def test_no_header_of_a_client_but_the_allowed_reaches_the_engine(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    hostile = {
        "Fleetward-Identity": "forged",
        "Fleetward-Admin": "forged",
        "Cookie": "c=1",
        "X-Forwarded-For": "1.2.3.4",
        "X-User": "root",
        "Accept-Encoding": "gzip",
        "Connection": "keep-alive, x-user",
        "Accept": "text/event-stream",
        "x-request-id": "abc-1._Z",
    }
    async with served.post(headers=hostile) as response:
        assert response.headers["x-request-id"] == "abc-1._Z"
    headers = engine.requests[0][0]
    assert set(headers) == {
        *("host", "content-type", "content-length", "accept"),
        *("x-request-id", "fleetward-identity"),
    }
    assert headers["fleetward-identity"] != "forged"
    assert headers["accept"] == "text/event-stream"
    assert KEY_A not in str(headers)


async def test_no_header_of_an_engine_but_the_allowed_reaches_the_client(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    sent = {
        "Set-Cookie": "c=1",
        "Server-Timing": "x",
        "x-ratelimit-limit-requests": "5",
        "Fleetward-Identity": "leak",
        "Fleetward-Cache-Policy": "p",
        "x-request-id": "engine",
        "openai-processing-ms": "7",
    }
    engine.behaviour = replies(200, {}, **sent)
    async with served.post() as response:
        got = {name.lower() for name in response.headers}
        assert response.headers["x-request-id"] != "engine"
    assert got == {
        *("date", "content-type", "content-length", "x-request-id"),
        *("x-ratelimit-limit-requests", "fleetward-cache-policy", "openai-processing-ms"),
    }


async def test_a_harmful_request_id_is_replaced(served: GatewayUnderTest) -> None:
    for offered in ("", "a b", "x" * 129, "ä", "a;b"):
        async with served.post(headers={"x-request-id": offered}) as response:
            assert response.headers["x-request-id"] != offered
            assert len(response.headers["x-request-id"]) == 32


async def answered(gateway: GatewayUnderTest) -> int:
    async with gateway.post() as response:
        return int(response.status)


async def test_requests_go_to_the_least_loaded_engine(
    gateway: GatewayUnderTest, engine: FakeEngine, second_engine: FakeEngine
) -> None:
    gateway.put_service()
    gateway.put_engines(engine, second_engine)
    engine.behaviour = second_engine.behaviour = hangs
    posts = [asyncio.create_task(answered(gateway)) for _ in range(10)]
    await eventually(lambda: len(engine.requests) + len(second_engine.requests) == 10)
    assert len(engine.requests) == len(second_engine.requests) == 5
    for post in posts:
        post.cancel()
    await asyncio.gather(*posts, return_exceptions=True)


async def test_bad_requests_are_told_what_is_wrong(served: GatewayUnderTest) -> None:
    cases: list[tuple[bytes, dict[str, str], int]] = [
        (b"", {}, 400),
        (b" " * 1_000_000, {}, 400),
        (b'{"model":"m","model":"n"}', {}, 400),
        (b'{"model":7}', {}, 400),
        (b'{"model":"m"}', {"Content-Type": "text/plain"}, 415),
        (b'{"model":"m"}', {"Content-Encoding": "gzip"}, 415),
        (b"x" * (5 << 20), {}, 413),
    ]
    for body, headers, status in cases:
        async with served.post(body, headers=headers) as response:
            assert response.status == status
            await problem(response)
    # The connection, or another one, still works.
    async with served.post() as response:
        assert response.status == 200


async def test_unknown_routes_and_methods_have_the_error_shape(served: GatewayUnderTest) -> None:
    cases = [
        ("GET", "/", 404),
        ("GET", "/v1/chat/completions", 405),
        ("PUT", "/v1/completions", 405),
        ("POST", "/v1/models", 405),
        ("POST", "/v1/chat/completions/", 404),
        ("POST", "/v1/embeddings", 404),
        ("POST", "//v1/completions", 404),
        ("GET", "/metrics", 404),
        ("GET", "/state", 404),
    ]
    for method, path, status in cases:
        async with served.session.request(
            method, served.url + path, allow_redirects=False
        ) as response:
            assert (method, path, response.status) == (method, path, status)
            await problem(response)


async def test_a_fault_of_our_own_is_500_in_shape_and_logs_no_content(
    served: GatewayUnderTest, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise KeyError("internal")

    monkeypatch.setattr(served.gateway.gate, "authorise", fails)
    async with served.post({"model": "m", "prompt": "my secret prompt"}) as response:
        assert response.status == 500
        assert (await problem(response))["code"] == "internal_error"
    assert "failed" in caplog.text
    assert "my secret prompt" not in caplog.text
    assert KEY_A not in caplog.text


async def test_the_held_bytes_and_counts_return_to_nothing(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    async with served.post({"model": "m", "prompt": "x" * 100_000}) as response:
        assert response.status == 200
    async with served.post({"model": "absent", "prompt": "x" * 100_000}) as response:
        assert response.status == 404
    assert served.gateway.budget.held == 0
    assert len(served.gateway.flights) == 0
    scrape = f"http://127.0.0.1:{served.gateway.scrape.port}/metrics"
    async with served.session.get(scrape) as response:
        text = await response.text()
    assert 'fleetward_gateway_requests_total{code="200",model="m",tenant="a"} 1.0' in text
    assert 'fleetward_gateway_requests_total{code="404",model="",tenant="a"} 1.0' in text
    assert "absent" not in text
    assert "fleetward_gateway_inflight_requests 0.0" in text


async def test_retention_classes_reach_the_token(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    policy = {
        "metadata": {"namespace": "apps", "name": "p", "uid": "u", "creationTimestamp": "2026"},
        "spec": {
            "namespaceDefault": True,
            "retention": {"classes": [{"name": "none", "store": "None"}, {"name": "day"}]},
        },
    }
    served.gateway.view.on_policy("apps/p", None, policy)
    served.gateway.view.on_tenant("a", None, tenant("a", retentionClass="day"))
    for asked, status in (("", 200), ("none", 200), ("nope", 400)):
        headers = {"Fleetward-Retention-Class": asked} if asked else {}
        async with served.post(headers=headers) as response:
            assert response.status == status
    classes = []
    for headers, _ in engine.requests:
        claims = verify_identity(
            headers["fleetward-identity"],
            served.signing.verify_key,
            service_uid="uid-apps-s",
            now=time.time(),
        )
        classes.append(claims.retention_class)
    assert classes == ["day", "none"]
