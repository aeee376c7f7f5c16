"""Users, sessions, permission scopes and tags: who shares, and what a purge of one finds."""

from __future__ import annotations

import asyncio
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.admin import PurgeOrder
from fleetward_api.bundle import Retention, RetentionClass
from fleetward_api.floors import Floors
from fleetward_api.identity import IdentityFloors
from fleetward_api.openai import CODE_PURGED
from fleetward_api.receipt import Receipt, receipt_faults
from fleetward_api.scope import Scope
from fleetward_engine.admin.policy import Apply, PolicyInForce, decide_push
from fleetward_engine.server.cache_context import cache_context
from fleetward_engine.server.identity import Caller
from fleetward_engine.server.retention_header import RETENTION_HEADER
from tests.fire.engine_server.test_policy import MODEL as FINGERPRINT
from tests.support.engine_server import (
    MODEL,
    SERVICE_UID,
    RunningEngine,
    bundle,
    push,
    running_engine,
)
from tests.support.eventually import eventually
from tests.support.purge_orders import code_of, order, receipt_of
from tests.support.tiny_server import blocks_of

PROMPT = "Who shares this, and who forgets it? " * 8
TEXT = "/v1/completions"
DIGESTS = st.sampled_from(["", "x", "y"])


@st.composite
def callers(draw: st.DrawFn) -> Caller:
    scopes = tuple(sorted(draw(st.sets(st.sampled_from(["p", "q"])))))
    return Caller(
        tenant=draw(st.sampled_from(["a", "b"])),
        tenant_uid=draw(st.sampled_from(["1", "2"])),
        user=draw(DIGESTS),
        session=draw(DIGESTS),
        permission_scope="+".join(scopes),
        permission_scopes=scopes,
        document_tags=tuple(sorted(draw(st.sets(st.sampled_from(["s", "t"]))))),
    )


def subject(caller: Caller, isolation: str) -> str | None:
    """Who may share beside the tenant; None for nobody."""
    named = {"Tenant": "", "User": caller.user, "Session": caller.session}[isolation]
    return named if named or isolation == "Tenant" else None


@given(
    one=callers(),
    other=callers(),
    isolation=st.sampled_from(["Tenant", "User", "Session"]),
    scopes=st.sampled_from(["Include", "Ignore"]),
)
def test_two_requests_share_exactly_when_all_that_isolation_looks_at_is_equal(
    one: Caller, other: Caller, isolation: Any, scopes: Any
) -> None:
    made = bundle(isolation=isolation, permission_scopes=scopes)
    policy = PolicyInForce(bundle=made, secret=b"s" * 32, floors=Floors())
    first, second = (cache_context(each, policy, model=FINGERPRINT) for each in (one, other))
    who = subject(one, isolation)
    assert (first.root is not None) is (who is not None) is first.store
    equal = (one.tenant, one.tenant_uid, one.document_tags) == (
        other.tenant, other.tenant_uid, other.document_tags,
    )  # fmt: skip
    places = scopes == "Ignore" or one.permission_scope == other.permission_scope
    shares = who is not None and who == subject(other, isolation) and equal and places
    assert (first.root is not None and first.root == second.root) is shares
    if shares and (isolation != "Session" or one.user == other.user):
        # So a purge of any scope of the one is a purge of the other's too.
        assert first.owner == second.owner


def test_changed_isolation_drops_what_was_shared_by_other_rules() -> None:
    before = PolicyInForce(bundle=bundle(3), secret=b"s" * 32, floors=Floors())
    changes: tuple[dict[str, Any], ...] = ({"isolation": "User"}, {"permission_scopes": "Ignore"})
    for change in changes:
        verdict = decide_push(before, push(4, **change), known=Floors(), service_uid=SERVICE_UID)
        assert isinstance(verdict, Apply)
        assert verdict.ttls is not None
        assert verdict.ttls.max_ttl_ms == 0


async def engine_with(engine: RunningEngine, generation: int, **rules: Any) -> None:
    answer = await engine.admin("PUT", "/policy", push(generation, secret=None, **rules))
    assert answer.status_code == 200


async def said(engine: RunningEngine, *, stream: bool = False, **claims: Any) -> str:
    body = {"model": MODEL, "prompt": PROMPT, "max_tokens": 1, "stream": stream}
    answer = await engine.http.post(engine.url + TEXT, json=body, headers=engine.identity(**claims))
    assert answer.status_code == 200
    return answer.headers[RETENTION_HEADER].partition(",")[0]


async def hits(engine: RunningEngine, **claims: Any) -> bool:
    return await engine.cached_tokens(PROMPT, tenant="a", **claims) > 0


async def purge(engine: RunningEngine, scope: Scope, floor: int) -> Receipt:
    order = PurgeOrder(
        purge_uid=f"p-{scope.kind}-{floor}", scope=scope.to_wire(), scope_digest="d" * 64,
        floor=floor, deadline_ms=20_000,
    )  # fmt: skip
    receipt = receipt_of(engine, await engine.admin("POST", "/purge", order))
    assert receipt_faults(receipt) == []
    return receipt


@pytest.mark.parametrize("stream", [False, True])
async def test_who_names_no_user_or_session_uses_no_cache_and_is_told(
    tmp_path: Path, stream: bool
) -> None:
    async with running_engine(tmp_path) as engine:
        retention = Retention(classes={"never": RetentionClass(store="None")})
        await engine_with(engine, 2, isolation="User", retention=retention)
        for _ in range(2):
            assert not await hits(engine)
        assert await said(engine, stream=stream) == "store=none;why=no-user"
        assert await said(engine, stream=stream, user="u") == "store=device"
        never = {"user": "u", "retention_class": "never"}
        assert await said(engine, stream=stream, **never) == "store=none;why=not-stored"
        await engine_with(
            engine, 3, isolation="Session", floors=Floors(version=1, users={"a/u": 1})
        )
        assert await said(engine, stream=stream, user="u") == "store=none;why=no-session"
        told = await said(engine, stream=stream, user="u", session="s")
        assert told == "store=none;why=purged"


async def test_sessions_part_the_cache_and_a_purge_of_their_user_finds_all(tmp_path: Path) -> None:
    async with running_engine(tmp_path) as engine:
        await engine_with(engine, 2, isolation="Session")
        asked = [{"user": user, "session": f"{user}{n}"} for user in "uv" for n in (1, 2)]
        for claims in asked:
            assert not await hits(engine, **claims)
        assert all([await hits(engine, **claims) for claims in asked])
        receipt = await purge(engine, Scope("a", user="u"), 1)
        assert receipt.removed == receipt.inserted - receipt.evicted > 0
        floors = IdentityFloors(user=1)
        assert [await hits(engine, **claims) for claims in asked] == [False, False, True, True]
        assert not await hits(engine, **asked[0], floors=floors)
        assert await hits(engine, **asked[0], floors=floors)


async def test_a_purge_of_one_permission_scope_or_tag_finds_every_set_that_holds_it(
    tmp_path: Path,
) -> None:
    async with running_engine(tmp_path) as engine:
        await engine_with(engine, 2)
        asked: list[dict[str, Any]] = [
            {"permission_scope": "p"},
            {"permission_scope": "pq", "permission_scopes": ("p", "q")},
            {"permission_scope": "q"},
            {"document_tags": ("s",)},
            {"document_tags": ("s", "t")},
            {"document_tags": ("t",)},
            {},
        ]
        for claims in asked:
            assert not await hits(engine, **claims)
        await purge(engine, Scope("a", permission_scope="p"), 1)
        await purge(engine, Scope("a", document_tag="s"), 1)
        found = [await hits(engine, **claims) for claims in asked]
        assert found == [False, False, True, False, False, True, True]
        again = await purge(engine, Scope("a"), 1)
        assert again.removed > 0


async def test_what_began_before_users_were_told_apart_is_in_each_purge_until_it_ends(
    tmp_path: Path,
) -> None:
    async with running_engine(tmp_path, step_ms=20.0) as engine:
        body = {"model": MODEL, "prompt": PROMPT, "max_tokens": 1500, "ignore_eos": True}
        running = [
            asyncio.create_task(
                engine.http.post(
                    engine.url + TEXT, json=body, headers=engine.identity(tenant, user="u")
                )
            )
            for tenant in "ab"
        ]
        await eventually(lambda: engine.stats.running == 2 and engine.stats.generation_tokens > 4)
        await engine_with(engine, 2, isolation="User")
        for scope in (Scope("a", user="u"), Scope("b", document_tag="t")):
            made = order(scope.tenant, 1, uid=scope.kind, scope=scope.to_wire(), in_flight="Abort")
            receipt = receipt_of(engine, await engine.admin("POST", "/purge", made))
            assert receipt_faults(receipt) == []
            # A tag parts the cache under any rules, so a request without it is not meant.
            assert receipt.in_flight_aborted == (1 if scope.user else 0)
        assert code_of(await running[0]) == (503, CODE_PURGED)
        assert not running[1].done()
        assert await engine.assembly.service.loop.call(lambda one: blocks_of(one, "a")) == []
        running[1].cancel()


async def test_what_isolation_does_not_tell_apart_is_not_purged_by_halves(tmp_path: Path) -> None:
    async with running_engine(tmp_path) as engine:
        await engine_with(engine, 2, permission_scopes="Ignore")
        await hits(engine, user="u", permission_scope="p")
        for scope in (Scope("a", user="u"), Scope("a", permission_scope="p")):
            order = PurgeOrder(
                purge_uid=f"p-{scope.kind}", scope=scope.to_wire(), scope_digest="d" * 64,
                floor=1, deadline_ms=1000,
            )  # fmt: skip
            refused = code_of(await engine.admin("POST", "/purge", order))
            assert refused == (400, "unsupported_scope")
        # The floor of a user who is not told apart closes the cache to older tokens all the same.
        assert await hits(engine, user="u", permission_scope="p")


def test_every_fact_of_a_caller_that_may_part_the_cache_is_tried() -> None:
    parts = {"tenant", "tenant_uid", "user", "session", "permission_scope", "document_tags"}
    others = {"floors", "retention_class", "priority", "weight", "deadline_ms", "permission_scopes"}
    assert {field.name for field in fields(Caller)} == parts | others
    assert replace(Caller(tenant="a"), user="u").user == "u"
