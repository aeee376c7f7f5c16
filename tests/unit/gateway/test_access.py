"""Who may ask, and for what: keys, tenants and models at a running gateway."""

from __future__ import annotations

from typing import Any

from tests.support.fake_engine import FakeEngine
from tests.support.gateway import KEY_A, KEY_B, GatewayUnderTest, tenant
from tests.support.gateway_problem import problem

BAD_AUTHORIZATION = (
    *("", "Bearer", "Bearer ", "Basic abc", KEY_A),
    *("Bearer " + KEY_A + "x", "Bearer " + KEY_A[:-1], "Bearer " + "k" * 600),
)


async def test_without_a_good_key_it_is_401(served: GatewayUnderTest) -> None:
    for authorization in BAD_AUTHORIZATION:
        headers = {"Authorization": authorization}
        for path in ("/v1/chat/completions", "/v1/completions"):
            async with served.session.post(
                served.url + path, json={"model": "m"}, headers=headers
            ) as response:
                assert (authorization, response.status) == (authorization, 401)
                assert response.headers["www-authenticate"] == "Bearer"
                assert (await problem(response))["code"] == "invalid_api_key"
        async with served.session.get(served.url + "/v1/models", headers=headers) as response:
            assert response.status == 401


async def test_two_authorization_headers_are_no_key(served: GatewayUnderTest) -> None:
    headers = [("Authorization", f"Bearer {KEY_A}"), ("Authorization", f"Bearer {KEY_B}")]
    async with served.session.post(
        served.url + "/v1/completions", json={"model": "m"}, headers=headers
    ) as response:
        assert response.status == 401


async def test_keys_rotate_vanish_and_expire_live_and_look_alike(
    served: GatewayUnderTest,
) -> None:
    async def answer(key: str) -> tuple[int, dict[str, Any] | None]:
        async with served.post(key=key) as response:
            return response.status, None if response.status == 200 else await problem(response)

    unknown = await answer("sk-never-seen-0123456789")
    assert (await answer(KEY_A))[0] == 200
    served.put_secret("a-key", "sk-new-key-0123456789abc")
    assert (await answer("sk-new-key-0123456789abc"))[0] == 200
    assert await answer(KEY_A) == unknown
    view = served.gateway.view
    view.on_secret("fleetward-keys/a-key", {}, None)
    assert await answer("sk-new-key-0123456789abc") == unknown
    served.put_secret("a-key", KEY_A)
    assert (await answer(KEY_A))[0] == 200
    keys = [{"name": "k", "secretRef": {"name": "a-key"}, "expiresAt": "2020-01-01T00:00:00Z"}]
    view.on_tenant("a", {}, tenant("a", apiKeys=keys))
    assert await answer(KEY_A) == unknown
    view.on_tenant("a", {}, None)
    assert await answer(KEY_A) == unknown
    assert unknown[0] == 401


async def test_another_tenants_model_looks_exactly_like_a_missing_one(
    served: GatewayUnderTest, engine: FakeEngine
) -> None:
    answers = []
    for model, key in (("m", KEY_B), ("n", KEY_B)):
        headers = {"x-request-id": "same"}
        async with served.post({"model": model}, key=key, headers=headers) as response:
            text = (await response.text()).replace(f"'{model}'", "'?'")
            kept = {k: v for k, v in response.headers.items() if k.lower() != "date"}
            answers.append((response.status, kept, text))
    assert answers[0] == answers[1]
    assert answers[0][0] == 404
    assert engine.requests == []


async def test_the_model_list_shows_only_what_the_tenant_may_call(
    served: GatewayUnderTest,
) -> None:
    served.put_service("shared", model="shared", tenants=("a", "b"))
    served.put_service("nobody", model="nobody", tenants=())

    async def listed(key: str) -> list[str]:
        headers = {"Authorization": f"Bearer {key}"}
        async with served.session.get(served.url + "/v1/models", headers=headers) as response:
            body = await response.json()
            assert body["object"] == "list"
            assert all(entry["object"] == "model" for entry in body["data"])
            return [entry["id"] for entry in body["data"]]

    assert await listed(KEY_A) == ["m", "shared"]
    assert await listed(KEY_B) == ["shared"]
    headers = {"Authorization": f"Bearer {KEY_B}"}
    for name, status in (("shared", 200), ("m", 404), ("none", 404)):
        async with served.session.get(
            f"{served.url}/v1/models/{name}", headers=headers
        ) as response:
            assert response.status == status


async def test_before_the_first_sync_a_good_key_is_503_and_not_401(
    served: GatewayUnderTest,
) -> None:
    served.gateway.watches.informers["tenants"].synced.clear()
    async with served.post() as response:
        assert response.status == 503
        assert response.headers["retry-after"] == "2"
    async with served.session.get(served.url + "/readyz") as response:
        assert response.status == 503
        assert (await response.json())["missing"] == ["tenants"]
    async with served.session.get(served.url + "/healthz") as response:
        assert response.status == 200
