"""The isolation probe against a whole engine: it proves, it catches, it leaves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from fleetward_api.bundle import PolicyBundle
from fleetward_api.cache_key import cache_root
from fleetward_api.isolation_probe import (
    ISOLATION_PROBE_PATH,
    ProbeOrder,
    ProbeReport,
    judge_probe,
)
from fleetward_api.scope import Scope
from fleetward_engine.admin import isolation
from fleetward_engine.admin.probe_identities import probe_identities
from fleetward_engine.kv_cache import KvCache, Purged
from fleetward_engine.probe_tenants import PROBE_TENANTS
from fleetward_engine.server import cache_context
from fleetward_engine.server.errors import ApiError
from tests.support.engine_core import make_request
from tests.support.engine_server import BLOCK, RunningEngine, push, running_engine
from tests.support.eventually import eventually

ORDER = ProbeOrder(deadline_ms=60_000)


@pytest_asyncio.fixture
async def engine(tmp_path: Path) -> AsyncIterator[RunningEngine]:
    async with running_engine(tmp_path) as running:
        yield running


async def probe(engine: RunningEngine, order: ProbeOrder = ORDER) -> ProbeReport:
    answer = await engine.admin("POST", ISOLATION_PROBE_PATH, order)
    assert answer.status_code == 200, answer.text
    return ProbeReport.model_validate_json(answer.content)


async def held_by_probes(engine: RunningEngine) -> int:
    """Blocks and entries of the probes' tenants, by looking at all."""

    def look(core: Any) -> int:
        pool, index = core._kv_cache.pool, core._kv_cache.index
        owners = [pool.owner(block) for block in range(1, pool.num_blocks + 1)]
        blocks = [one for one in owners if one is not None and one.scope.tenant in PROBE_TENANTS]
        resident = [index.counts(s).resident for s in index.scopes() if s.tenant in PROBE_TENANTS]
        return int(len(blocks) + sum(resident))

    held: int = await engine.assembly.service.loop.call(look)
    return held


async def test_an_engine_proves_itself_again_and_again(engine: RunningEngine) -> None:
    for _ in range(3):
        report = await probe(engine)
        assert judge_probe(report).verdict == "Proved", report
        found = {look.identity: look.cached_tokens for look in report.looks}
        assert found.pop("the same identity") == 2 * BLOCK
        assert set(found.values()) == {0}
        assert {"another tenant", "a request after a purge", "another document tag"} <= set(found)
        assert await held_by_probes(engine) == 0


async def test_a_probe_is_in_nobodys_numbers(engine: RunningEngine) -> None:
    await engine.cached_tokens("a prompt of a tenant that is somewhat longer than two blocks are")
    scrape = f"http://127.0.0.1:{engine.metrics_port}/metrics"
    before = (await engine.http.get(scrape)).text
    shares, cached = dict(engine.stats.shares), engine.stats.cached_blocks
    assert judge_probe(await probe(engine)).verdict == "Proved"
    # Numbers are published once the call that purged has been answered.
    await eventually(lambda: engine.stats.cached_blocks == cached)
    after = (await engine.http.get(scrape)).text
    assert told(after) == told(before)
    assert engine.stats.shares == shares
    assert "~probe" not in after


async def test_a_probe_that_is_refused_or_broken_off_is_in_no_metric(
    engine: RunningEngine,
) -> None:
    service = engine.assembly.service
    scrape = f"http://127.0.0.1:{engine.metrics_port}/metrics"
    before = (await engine.http.get(scrape)).text
    dropped = make_request("dropped", [1] * 40, scope=Scope(PROBE_TENANTS[0]))
    service.submit([dropped], measured=False)
    service.abort("dropped")
    beyond = replace(dropped, request_id="beyond", prompt_token_ids=(1,) * 100_000)
    refused = service.submit([beyond], measured=False)
    with pytest.raises(ApiError):
        await refused.next_outputs()
    assert told((await engine.http.get(scrape)).text) == told(before)


def told(text: str) -> dict[str, str]:
    """What a scrape says of requests, tokens and tenants."""
    names = ("request", "token", "tenant", "prefix_cache", "evictions", "expired", "purged")
    lines = [line for line in text.splitlines() if any(name in line for name in names)]
    rows = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: value for name, _, value in rows if "_created" not in name}


def shares_roots(*_given: Any) -> bytes:
    """An engine that derives one root for everybody."""
    return bytes(32)


def forgets(name: str) -> Any:
    """An engine that leaves one fact out of its roots."""

    def root(secret: bytes, inputs: Any) -> bytes:
        field = {"floors": (0, 0, 0, 0)}.get(name, "")
        changed = {**{one: getattr(inputs, one) for one in type(inputs).__slots__}, name: field}
        return cache_root(secret, type(inputs)(**changed))

    return root


@pytest.mark.parametrize(
    ("sabotage", "who"),
    [
        (shares_roots, "another tenant"),
        (forgets("tenant"), "another tenant"),
        (forgets("tenant_uid"), "a later tenant of the same name"),
        (forgets("document_tags_digest"), "another document tag"),
        (forgets("floors"), "a request after a purge"),
    ],
    ids=["everything", "tenant", "uid", "tags", "floors"],
)
async def test_an_engine_that_shares_is_caught(
    engine: RunningEngine, monkeypatch: pytest.MonkeyPatch, sabotage: Any, who: str
) -> None:
    monkeypatch.setattr(cache_context, "cache_root", sabotage)
    found = judge_probe(await probe(engine))
    assert found.verdict == "Failed"
    assert f"{who} found {2 * BLOCK} of {2 * BLOCK + 1} tokens" in found.words
    assert await held_by_probes(engine) == 0


async def test_an_engine_whose_purge_leaves_bytes_is_caught(
    engine: RunningEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KvCache, "purge", _purges_nothing)
    assert "after its purge" in judge_probe(await probe(engine)).words


def _purges_nothing(cache: KvCache, scope: Any, floor: int, *, scrub: bool) -> Any:
    del scrub
    entries = [e for e in cache.index._entries.values() if e.owner.scope == scope]
    keys = tuple(entry.key for entry in entries)
    return Purged(keys=keys, blocks=(), blocks_in_use=0, host_slots=0)


async def test_an_engine_without_reuse_proves_that_nothing_is_shared(tmp_path: Path) -> None:
    async with running_engine(tmp_path, enable_prefix_caching=False) as engine:
        report = await probe(engine)
    assert not report.caching
    assert judge_probe(report).verdict == "Proved"


async def test_a_saturated_engine_is_not_probed_and_serves_on(
    engine: RunningEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation.ProbeDesk, "_has_room", lambda _desk, _plan: False)
    report = await probe(engine, ProbeOrder(deadline_ms=1))
    assert report.not_run == "Busy"
    assert judge_probe(report).verdict == "NotProved"
    assert not report.looks


async def test_probes_beside_each_other_take_turns(engine: RunningEngine) -> None:
    reports = await asyncio.gather(*(probe(engine) for _ in range(4)))
    assert {judge_probe(one).verdict for one in reports} == {"Proved"}


FINER = [
    ({"isolation": "User"}, "isolation_subject", "another user"),
    ({"isolation": "Session"}, "isolation_subject", "another session"),
    (
        {"permission_scopes": "Include"},
        "permission_scope_digest",
        "another permission scope",
    ),
]


@pytest.mark.parametrize(("rules", "fact", "who"), FINER, ids=[who for _, _, who in FINER])
async def test_what_a_policy_separates_within_a_tenant_is_probed_too(
    engine: RunningEngine,
    monkeypatch: pytest.MonkeyPatch,
    rules: dict[str, Any],
    fact: str,
    who: str,
) -> None:
    plain: dict[str, Any] = {"permission_scopes": "Ignore"}
    assert (await engine.admin("PUT", "/policy", push(2, **plain))).status_code == 200
    assert who not in {look.identity for look in (await probe(engine)).looks}
    finer = push(3, **{**plain, **rules})
    assert (await engine.admin("PUT", "/policy", finer)).status_code == 200
    report = await probe(engine)
    assert judge_probe(report).verdict == "Proved", report
    assert who in {look.identity for look in report.looks}
    monkeypatch.setattr(cache_context, "cache_root", forgets(fact))
    found = judge_probe(await probe(engine))
    assert found.verdict == "Failed"
    assert f"{who} found" in found.words


def test_no_two_identities_are_one_but_the_first_and_its_repeat() -> None:
    facts = {"generation": 1, "epoch": 1, "permissionScopes": "Include"}
    service = {"namespace": "a", "name": "b", "uid": "c"}
    for level in ("Tenant", "User", "Session"):
        bundle = PolicyBundle.model_validate({"service": service, **facts, "isolation": level})
        asked = probe_identities(bundle, floor=4)
        assert [one.words for one in asked if one.may_reuse] == ["the same identity"]
        assert len({one.caller for one in asked}) == len(asked) - 1
