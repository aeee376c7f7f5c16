"""Nothing that a client says of itself changes whose request it is, on any route."""

from __future__ import annotations

import json
import random
import time
from typing import Any

from e2e.chaos.scale import is_full, seed
from e2e.figures.record import record
from fleetward_api.identity import IdentityClaims, mint_identity, verify_identity
from fleetward_api.keys import SigningKey
from fleetward_api.scope import user_digest
from tests.support.fake_engine import FakeEngine, replies
from tests.support.gateway import DIGEST_KEY, KEY_A, KEY_B, GatewayUnderTest

NAMES = (
    *("x-tenant", "x-tenant-id", "x-user", "x-user-id", "x-org-id", "x-auth-request-user"),
    *("x-forwarded-for", "x-forwarded-user", "x-forwarded-host", "x-forwarded-proto", "forwarded"),
    *(
        "x-real-ip",
        "x-original-url",
        "x-rewrite-url",
        "x-api-key",
        "api-key",
        "openai-organization",
    ),
    *("openai-project", "cookie", "baggage", "traceparent", "tracestate", "x-cache-salt"),
    *("fleetward-identity", "Fleetward-Identity", "FLEETWARD-IDENTITY", "fleetward_identity"),
    *("fleetward-admin", "fleetward-tenant", "fleetward-floors", "fleetward-wire-version"),
    *("x-http-method-override", "proxy-authorization", "via", "x-service", "x-priority"),
)
FIELDS = ("user", "cache_salt", "prompt_cache_key", "tenant", "metadata", "safety_identifier")
ROUTES = (
    *(("POST", "/v1/completions"), ("POST", "/v1/chat/completions"), ("GET", "/v1/models")),
    *(
        ("GET", "/v1/models/m"),
        ("GET", "/v1/completions"),
        ("POST", "/nowhere"),
        ("GET", "/healthz"),
    ),
)
ALLOWED = {
    *("host", "content-type", "content-length", "accept", "x-request-id", "fleetward-identity")
}


def forged(gateway: GatewayUnderTest, rng: random.Random) -> str:
    """A value that would help, were it believed: a name, a list, or a whole token."""
    claims = IdentityClaims(
        service_uid="uid-apps-s",
        tenant="b",
        request_id=f"r{rng.random()}",
        issued_at=int(time.time()),
        expires_at=int(time.time()) + 60,
    )
    token = mint_identity(claims, SigningKey.generate())
    return rng.choice(("b", "tenant=b", "b, a", "userId=b,tenant=b", KEY_B, token, "10.0.0.1"))


def told(headers: dict[str, str], gateway: GatewayUnderTest) -> IdentityClaims:
    """What an engine is told of the caller."""
    return verify_identity(
        headers["fleetward-identity"],
        gateway.signing.verify_key,
        service_uid="uid-apps-s",
        now=time.time(),
    )


def facts(claims: IdentityClaims) -> dict[str, Any]:
    """All that decides on cache and order: everything but what is made anew for each request."""
    return claims.model_dump(exclude={"request_id", "issued_at", "expires_at"}, by_alias=True)


async def test_no_attempt_changes_tenant_or_cache(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    rng = random.Random(seed())  # noqa: S311 - which lie to tell
    async with served.post() as response:
        assert response.status == 200
    honest = facts(told(engine.requests.pop()[0], served))
    assert honest["ten"] == "a"
    effective, arrived = [], 0
    attempts = 500 if is_full() else 150
    for number in range(attempts):
        names = rng.sample(NAMES, rng.randint(1, 4))
        spoof = {name: forged(served, rng) for name in names}
        body = {"model": "m", **dict.fromkeys(rng.sample(FIELDS, 2), "b")}
        method, path = ROUTES[number % len(ROUTES)]
        # Errors on the way back, too: none of them may reach an engine with another identity.
        engine.behaviour = replies(rng.choice((200, 400, 429, 500)), {"x": 1})
        async with served.session.request(
            method,
            served.url + path,
            json=body if method == "POST" else None,
            headers={"Authorization": f"Bearer {KEY_A}", **spoof},
        ) as response:
            text = await response.text()
            answer = str(response.headers) + text
        for headers, sent in engine.requests:
            arrived += 1
            # The application may name its user, who is one of its own tenant, and no other's.
            names_user = not {"user", "safety_identifier"}.isdisjoint(body)
            user = user_digest(DIGEST_KEY, "a", "b") if names_user else ""
            expected = {**honest, "usr": user}
            same = facts(told(headers, served)) == expected and set(headers) <= ALLOWED
            if not same or json.loads(sent) != body:
                effective.append((path, spoof))
        if any(len(value) > 10 and value in answer for value in spoof.values()):
            effective.append((path, spoof))
        engine.requests.clear()
    if is_full():
        record("spoofs-effective", len(effective), f"of {attempts}, {arrived} at an engine")
    assert effective == []
    assert arrived >= attempts // 4


async def test_a_spoof_without_a_key_opens_nothing(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    rng = random.Random(seed())  # noqa: S311 - which lie to tell
    for name in NAMES:
        value = forged(served, rng)
        async with served.session.post(
            served.url + "/v1/completions", json={"model": "m"}, headers={name: value}
        ) as response:
            assert response.status == 401, name
    assert engine.requests == []
