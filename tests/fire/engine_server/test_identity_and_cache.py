"""Who may call, and whose cache they see: each refusal beside its paired hit."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fleetward_api.bundle import Retention, RetentionClass
from fleetward_api.floors import Floors
from fleetward_api.identity import IDENTITY_HEADER, IdentityFloors, mint_identity
from fleetward_api.keys import SigningKey
from fleetward_engine.server.errors import ApiError
from fleetward_engine.server.identity import Caller, GatewayAuthenticator
from fleetward_engine.server.trust import TrustStore
from tests.support.engine_core import Clock
from tests.support.engine_server import (
    MODEL,
    SERVICE_UID,
    Keys,
    RunningEngine,
    make_claims,
    push,
    running_engine,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = "a prompt of some length, so that it fills a good many blocks of sixteen tokens each"
FLOORED = "floored"
POLICY = push(
    retention=Retention(classes={"never": RetentionClass(store="None")}),
    floors=Floors(version=3, tenants={FLOORED: 3}),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningEngine]:
    folder = tmp_path_factory.mktemp("identity")
    async with running_engine(folder, policy=POLICY) as running:
        yield running


async def refusal(engine: RunningEngine, headers: dict[str, str]) -> tuple[int, str]:
    body = {"model": MODEL, "prompt": "x", "max_tokens": 1}
    answer = await engine.http.post(engine.url + "/v1/completions", json=body, headers=headers)
    return answer.status_code, answer.json().get("error", {}).get("code", "")


async def test_a_genuine_identity_is_served_once(engine: RunningEngine) -> None:
    headers = engine.identity()
    assert await refusal(engine, headers) == (200, "")
    assert await refusal(engine, headers) == (401, "identity_replayed")


async def test_what_is_no_identity_is_refused(engine: RunningEngine) -> None:
    old = int(time.time()) - 3600
    forged = mint_identity(make_claims(), SigningKey.generate())
    cases = {
        "identity_missing": {},
        "identity_malformed": {IDENTITY_HEADER: "x" * 5000},
        "identity_forged": {IDENTITY_HEADER: forged},
        "identity_expired": engine.identity(issued_at=old, expires_at=old + 60),
        "identity_wrong_service": engine.identity(service_uid="another"),
    }
    seen = {code: await refusal(engine, headers) for code, headers in cases.items()}
    assert seen == {code: (401, code) for code in cases}


async def test_models_asks_for_an_identity_and_probes_do_not(engine: RunningEngine) -> None:
    assert (await engine.http.get(engine.url + "/v1/models")).status_code == 401
    answer = await engine.http.get(engine.url + "/v1/models", headers=engine.identity())
    assert answer.status_code == 200
    for path in ("/health", "/ready", "/load"):
        assert (await engine.http.get(engine.url + path)).status_code == 200


async def test_a_tenant_hits_its_own_cache_and_nobody_elses(engine: RunningEngine) -> None:
    assert await engine.cached_tokens(PROMPT, tenant="one") == 0
    assert await engine.cached_tokens(PROMPT, tenant="one") > 0
    assert await engine.cached_tokens(PROMPT, tenant="two") == 0


async def test_a_tenant_made_again_inherits_nothing(engine: RunningEngine) -> None:
    assert await engine.cached_tokens(PROMPT, tenant="again", tenant_uid="first") == 0
    assert await engine.cached_tokens(PROMPT, tenant="again", tenant_uid="first") > 0
    assert await engine.cached_tokens(PROMPT, tenant="again", tenant_uid="second") == 0


async def test_permission_scopes_and_document_tags_part_the_cache(engine: RunningEngine) -> None:
    assert await engine.cached_tokens(PROMPT, tenant="three", permission_scope="x") == 0
    assert await engine.cached_tokens(PROMPT, tenant="three", permission_scope="x") > 0
    assert await engine.cached_tokens(PROMPT, tenant="three", permission_scope="y") == 0
    assert await engine.cached_tokens(PROMPT, tenant="three", document_tags=("t",)) == 0
    assert await engine.cached_tokens(PROMPT, tenant="three", document_tags=("t",)) > 0


async def test_a_token_from_below_the_floor_neither_reads_nor_writes(
    engine: RunningEngine,
) -> None:
    for floor in (0, 2):
        await engine.cached_tokens(PROMPT, tenant=FLOORED, floor=floor)
        assert await engine.cached_tokens(PROMPT, tenant=FLOORED, floor=floor) == 0
    assert await engine.cached_tokens(PROMPT, tenant=FLOORED, floor=3) == 0
    assert await engine.cached_tokens(PROMPT, tenant=FLOORED, floor=3) > 0
    assert await engine.cached_tokens(PROMPT, tenant=FLOORED, floor=2) == 0
    assert await engine.cached_tokens(PROMPT, tenant=FLOORED, floor=4) == 0


@pytest.mark.parametrize("retention_class", ["never", "unknown-class"])
async def test_a_class_that_stores_nothing_enters_no_tier(
    engine: RunningEngine, retention_class: str
) -> None:
    tenant = f"tenant-{retention_class}"
    claims = {"tenant": tenant, "retention_class": retention_class}
    assert await engine.cached_tokens(PROMPT, **claims) == 0
    assert await engine.cached_tokens(PROMPT, **claims) == 0
    assert await engine.cached_tokens(PROMPT, tenant=tenant) == 0
    assert await engine.cached_tokens(PROMPT, tenant=tenant) > 0
    # It does not read what the tenant's other requests left, either.
    assert await engine.cached_tokens(PROMPT, **claims) == 0


async def test_new_trust_is_picked_up_and_a_broken_folder_keeps_the_old(
    engine: RunningEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetward_engine.server.trust.RECHECK_S", 0.0)
    before = engine.keys.gateway
    (engine.trust / "gateway.pub").write_text("not a key")
    assert await refusal(engine, engine.identity()) == (200, "")
    engine.keys.gateway = SigningKey.generate()
    engine.keys.write(engine.trust)
    assert await refusal(engine, engine.identity()) == (200, "")
    stale = {IDENTITY_HEADER: mint_identity(make_claims(), before)}
    assert await refusal(engine, stale) == (401, "identity_forged")


async def test_two_keys_of_the_gateway_are_trusted_for_as_long_as_both_are_mounted(
    engine: RunningEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetward_engine.server.trust.RECHECK_S", 0.0)
    old, new = engine.keys.gateway, SigningKey.generate()

    async def taken() -> list[tuple[int, str]]:
        tokens = [mint_identity(make_claims(), key) for key in (old, new)]
        return [await refusal(engine, {IDENTITY_HEADER: token}) for token in tokens]

    accepted, forged = (200, ""), (401, "identity_forged")
    overlap = engine.trust / "gateway-overlap.pub"
    assert await taken() == [accepted, forged]
    overlap.write_text(new.verify_key.to_b64() + "\n")
    assert await taken() == [accepted, accepted]
    overlap.write_text("not a key")
    assert await taken() == [accepted, accepted]
    (engine.trust / "gateway.pub").write_text(new.verify_key.to_b64())
    overlap.write_text(old.verify_key.to_b64())
    assert await taken() == [accepted, accepted]
    overlap.unlink()
    assert await taken() == [forged, accepted]


async def test_every_claim_reaches_the_caller_and_a_skewed_clock_replays_none(
    tmp_path: Path,
) -> None:
    keys = Keys()
    keys.write(tmp_path)
    wall = Clock(time.time())
    gate = GatewayAuthenticator(
        TrustStore(tmp_path), service_uid=SERVICE_UID, wall=wall, clock=lambda: 5.0
    )
    claims = make_claims(
        "a", tenant_uid="uid-1", user="u", session="s", permission_scope="p", document_tags=("t",),
        retention_class="short",
        floors=IdentityFloors(tenant=1, user=2, permission_scope=3, document_tag=4),
    )  # fmt: skip
    token = mint_identity(claims, keys.gateway)
    # Past its minute, within the leeway: taken, and still only once.
    wall.advance(300.0)
    assert gate.authenticate(token) == Caller(
        tenant="a", tenant_uid="uid-1", user="u", session="s", permission_scope="p",
        permission_scopes=("p",), document_tags=("t",),
        floors=(1, 2, 3, 4), retention_class="short",
    )  # fmt: skip
    for seconds in (0.0, -300.0, 900.0):
        wall.advance(seconds)
        with pytest.raises(ApiError, match="used before"):
            gate.authenticate(token)
    wall.advance(100.0)
    with pytest.raises(ApiError, match="expired"):
        gate.authenticate(mint_identity(make_claims("a"), keys.gateway))
