"""The admin API over real TLS with the certificate pinned, as the operator calls it."""

from __future__ import annotations

import asyncio
import ssl
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from fleetward_api.admin import (
    ADMIN_HEADER,
    WIRE_VERSION_HEADER,
    AdmissionReply,
    DrainReply,
    EvidencePage,
    MemberState,
    PurgeOrder,
    sign_admin_call,
)
from fleetward_api.bundle import Deletion, Retention
from fleetward_api.chain_log import ChainHead, chain_fault
from fleetward_api.floors import Floors
from fleetward_api.keys import SigningKey
from fleetward_api.member import open_admission
from fleetward_api.receipt import RECEIPT_DOMAIN, Receipt, receipt_faults
from fleetward_api.scope import Scope
from fleetward_api.signed import Signed, verify
from fleetward_engine.engine import Engine
from fleetward_engine.prefix_index import Entry, PrefixIndex
from tests.support.engine_core import make_request
from tests.support.engine_server import POD_UID, RunningEngine, push, running_engine
from tests.support.eventually import eventually

NONCE = "ab" * 16
PROMPT = "words enough to fill several blocks of sixteen tokens, and then a few more of them"


@pytest_asyncio.fixture
async def engine(tmp_path: Path) -> AsyncIterator[RunningEngine]:
    async with running_engine(tmp_path) as running:
        yield running


def order(tenant: str, floor: int, *, uid: str = "purge-1", **fields: Any) -> PurgeOrder:
    base: dict[str, Any] = {
        "purge_uid": uid,
        "scope": Scope(tenant=tenant).to_wire(),
        "scope_digest": "d" * 64,
        "floor": floor,
        "deadline_ms": 20_000,
    }
    return PurgeOrder(**{**base, **fields})


def receipt_of(engine: RunningEngine, answer: httpx.Response) -> Receipt:
    assert answer.status_code == 200, answer.text
    signed = Signed[Receipt].model_validate_json(answer.content)
    assert engine.assembly.member is not None
    key = engine.assembly.member.keys.receipt_key.verify_key
    return verify(signed, key, domain=RECEIPT_DOMAIN)


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_admission_proves_who_answered(engine: RunningEngine) -> None:
    answer = await engine.raw_admin("GET", f"/admission?nonce={NONCE}")
    reply = AdmissionReply.model_validate_json(answer.content)
    assert engine.assembly.member is not None
    proof = open_admission(
        reply,
        sealing=engine.keys.sealing,
        nonce=NONCE,
        peer_certificate_der=ssl.PEM_cert_to_DER_cert(
            engine.assembly.member.keys.certificate_pem.decode()
        ),
        expected_pod_uid=POD_UID,
    )
    assert proof.token == "service-account-token"
    assert code_of(await engine.raw_admin("GET", "/admission?nonce=zz")) == (400, "bad_nonce")


async def test_calls_are_signed_for_this_pod_this_path_once(engine: RunningEngine) -> None:
    assert code_of(await engine.raw_admin("GET", "/state")) == (401, "missing")
    refusals: dict[str, dict[str, Any]] = {
        "forged": {"key": SigningKey.generate()},
        "wrong_pod": {"pod_uid": "another"},
        "wrong_call": {"path": "/evidence"},
        "stale": {"now": time.time() - 3600},
    }
    for code, call in refusals.items():
        assert code_of(await engine.admin("GET", "/state", **call)) == (401, code)
    again = {"request_id": uuid.uuid4().hex}
    assert (await engine.admin("GET", "/state", **again)).status_code == 200
    assert code_of(await engine.admin("GET", "/state", **again)) == (401, "replayed")
    assert code_of(await engine.raw_admin("GET", "/nope")) == (404, "unknown_call")


async def test_an_unknown_wire_version_is_told_those_spoken(engine: RunningEngine) -> None:
    header = sign_admin_call(
        method="GET", path="/state", body=b"", pod_uid=POD_UID, key=engine.keys.operator,
        now=time.time(), request_id="v",
    )  # fmt: skip
    headers = {ADMIN_HEADER: header, WIRE_VERSION_HEADER: "99"}
    answer = await engine.raw_admin("GET", "/state", headers=headers)
    assert code_of(answer) == (400, "unknown_wire_version")
    assert "1" in answer.json()["error"]["message"]


async def test_bundles_only_go_forward(engine: RunningEngine) -> None:
    newer = push(5, secret=None, floors=Floors(version=2, tenants={"a": 2}))
    ack = await engine.admin("PUT", "/policy", newer)
    assert ack.json()["generation"] == 5
    assert ack.json()["floorsVersion"] == 2
    assert (await engine.admin("PUT", "/policy", newer)).content == ack.content
    assert code_of(await engine.admin("PUT", "/policy", push(4))) == (409, "stale_generation")
    other = push(5, secret=None, floors=Floors(version=9))
    assert code_of(await engine.admin("PUT", "/policy", other)) == (409, "generation_conflict")
    unknown = push(6, secret=None, epoch=2)
    assert code_of(await engine.admin("PUT", "/policy", unknown)) == (400, "epoch_missing")
    users = push(6, isolation="User")
    assert code_of(await engine.admin("PUT", "/policy", users)) == (400, "unsupported_isolation")
    assert code_of(await engine.admin("PUT", "/policy", newer.bundle)) == (400, "invalid_body")
    state = MemberState.model_validate_json((await engine.admin("GET", "/state")).content)
    assert (state.bundle_generation, state.bundle_digest) == (5, newer.bundle.digest)
    assert state.model is not None
    assert state.model.runner == "simulated"
    assert state.kv_blocks_total == 512


async def test_a_purge_removes_one_tenant_and_says_so_once(engine: RunningEngine) -> None:
    for tenant in ("a", "b"):
        await engine.cached_tokens(PROMPT, tenant=tenant)
        assert await engine.cached_tokens(PROMPT, tenant=tenant) > 0
    raised = push(2, secret=None, floors=Floors(version=1, tenants={"a": 1}))
    assert (await engine.admin("PUT", "/policy", raised)).status_code == 200
    answers = await asyncio.gather(
        *(engine.admin("POST", "/purge", order("a", 1)) for _ in range(3))
    )
    assert len({answer.content for answer in answers}) == 1
    receipt = receipt_of(engine, answers[0])
    assert receipt_faults(receipt) == []
    assert receipt.removed > 0
    assert receipt.probes == receipt.removed
    assert {tier.tier: tier.method for tier in receipt.tiers} == {
        "index": "dropped", "device": "overwritten",
    }  # fmt: skip
    assert await engine.cached_tokens(PROMPT, tenant="a", floor=1) == 0
    assert await engine.cached_tokens(PROMPT, tenant="a", floor=1) > 0
    assert await engine.cached_tokens(PROMPT, tenant="b") > 0
    again = await engine.admin("POST", "/purge", order("a", 1))
    assert again.content == answers[0].content


async def test_a_purge_of_nothing_is_complete_with_zeros(engine: RunningEngine) -> None:
    receipt = receipt_of(engine, await engine.admin("POST", "/purge", order("nobody", 1)))
    assert receipt_faults(receipt) == []
    assert (receipt.removed, receipt.inserted, receipt.recount) == (0, 0, 0)
    assert all(tier.method == "none" for tier in receipt.tiers)


async def test_an_order_is_not_mistaken_for_another(engine: RunningEngine) -> None:
    receipt_of(engine, await engine.admin("POST", "/purge", order("a", 1)))
    answer = await engine.admin("POST", "/purge", order("b", 1))
    assert code_of(answer) == (409, "purge_conflict")
    finer = order("a", 1, uid="p2", scope=Scope(tenant="a", user="u").to_wire())
    assert code_of(await engine.admin("POST", "/purge", finer)) == (400, "unsupported_scope")


async def test_a_build_that_removes_nothing_owns_up(
    engine: RunningEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await engine.cached_tokens(PROMPT, tenant="a")
    monkeypatch.setattr(
        "fleetward_engine.prefix_index.PrefixIndex.remove_below", lambda *_arguments: []
    )
    receipt = receipt_of(engine, await engine.admin("POST", "/purge", order("a", 1)))
    assert receipt.recount > 0
    assert receipt_faults(receipt)


@pytest.mark.parametrize("in_flight", ["Finish", "Abort"])
async def test_requests_in_flight_finish_or_abort_and_leave_nothing(
    tmp_path: Path, in_flight: Any
) -> None:
    policy = push(deletion=Deletion(in_flight=in_flight))
    async with running_engine(tmp_path, policy=policy, step_ms=5.0) as engine:
        body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 60}
        running = asyncio.create_task(engine.chat(body, tenant="a"))
        other = asyncio.create_task(engine.chat(body, tenant="b"))
        await eventually(lambda: engine.stats.running == 2)
        floors = Floors(version=1, tenants={"a": 1})
        raised = push(2, secret=None, floors=floors, deletion=policy.bundle.deletion)
        assert (await engine.admin("PUT", "/policy", raised)).status_code == 200
        answer = await engine.admin("POST", "/purge", order("a", 1, in_flight=in_flight))
        receipt = receipt_of(engine, answer)
        assert receipt_faults(receipt) == []
        finished, aborted = (1, 0) if in_flight == "Finish" else (0, 1)
        assert (receipt.in_flight_finished, receipt.in_flight_aborted) == (finished, aborted)
        status = (await running).status_code
        assert status == (200 if in_flight == "Finish" else 503)
        assert (await other).status_code == 200
        assert await engine.cached_tokens(PROMPT, tenant="a", floor=1) == 0
        assert await engine.cached_tokens(PROMPT, tenant="b") > 0


async def test_a_stricter_order_than_its_fence_counts_what_it_aborts(tmp_path: Path) -> None:
    async with running_engine(tmp_path, step_ms=5.0) as engine:
        body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 500}
        running = asyncio.create_task(engine.chat(body, tenant="a"))
        await eventually(lambda: engine.stats.running == 1)
        raised = push(2, secret=None, floors=Floors(version=1, tenants={"a": 1}))
        assert (await engine.admin("PUT", "/policy", raised)).status_code == 200
        answer = await engine.admin("POST", "/purge", order("a", 1, in_flight="Abort"))
        receipt = receipt_of(engine, answer)
        assert (receipt.in_flight_finished, receipt.in_flight_aborted) == (0, 1)
        assert (await running).status_code == 503


async def test_a_deadline_aborts_what_does_not_finish(tmp_path: Path) -> None:
    async with running_engine(tmp_path, step_ms=20.0) as engine:
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1500}
        running = asyncio.create_task(engine.chat(body, tenant="a"))
        await eventually(lambda: engine.stats.running == 1)
        short = order("a", 1, deadline_ms=200)
        answer = await engine.admin("POST", "/purge", short)
        while answer.status_code == 504:
            # Its time was over while it was still at work: asking again waits on.
            assert code_of(answer) == (504, "deadline_exceeded")
            answer = await engine.admin("POST", "/purge", short)
        receipt = receipt_of(engine, answer)
        assert (receipt.in_flight_finished, receipt.in_flight_aborted) == (0, 1)
        assert receipt_faults(receipt) == []
        assert (await running).json()["error"]["code"] == "purged"


@pytest.mark.parametrize(("deadline_ms", "arrivals"), [(20_000, 3), (0, 1000)])
async def test_a_late_request_from_before_the_fence_makes_no_purge_incomplete(
    engine: RunningEngine, monkeypatch: pytest.MonkeyPatch, deadline_ms: int, arrivals: int
) -> None:
    overwrite = Engine.overwrite
    late = iter(range(arrivals))

    def with_late_arrivals(self: Engine, *arguments: Any, **limits: Any) -> tuple[int, int]:
        # Its token was minted before the fence, and it took until now to come through.
        for number in late:
            request = make_request(str(number), range(40), scope=Scope("a"), cached=False)
            self.add_request(request)
            break
        return overwrite(self, *arguments, **limits)

    monkeypatch.setattr(Engine, "overwrite", with_late_arrivals)
    await engine.cached_tokens(PROMPT, tenant="a")
    late_order = order("a", 1, deadline_ms=deadline_ms)
    answer = await engine.admin("POST", "/purge", late_order)
    while answer.status_code == 504:
        answer = await engine.admin("POST", "/purge", late_order)
    receipt = receipt_of(engine, answer)
    assert receipt_faults(receipt) == []
    assert receipt.removed > 0
    # However many come, past its time the purge waits for none of them.
    assert next(late, 3) < 10


async def test_what_a_broken_fence_let_in_is_removed_before_the_receipt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetward_engine.kv_cache.KvCache.fenced", lambda *_arguments: False)
    async with running_engine(tmp_path, step_ms=5.0) as engine:
        body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 60}
        running = asyncio.create_task(engine.chat(body, tenant="a"))
        await eventually(lambda: engine.stats.running == 1)
        receipt = receipt_of(engine, await engine.admin("POST", "/purge", order("a", 1)))
        assert receipt_faults(receipt) == []
        assert receipt.removed >= 60 // 16
        assert (await running).status_code == 200


def half_removed(index: PrefixIndex, scope: Scope, floor: int) -> list[Entry]:
    del floor
    doomed = [entry for entry in index._entries.values() if entry.owner.scope == scope]
    for entry in doomed[::2]:
        index.remove(entry, "removed")
    return doomed[::2]


@pytest.mark.parametrize(
    ("target", "instead"),
    [
        ("fleetward_engine.engine.Engine.overwrite", lambda *_arguments, **_limits: (0, 0)),
        ("fleetward_engine.prefix_index.PrefixIndex.remove_below", half_removed),
    ],
)
async def test_a_build_that_does_half_the_work_owns_up(
    engine: RunningEngine, monkeypatch: pytest.MonkeyPatch, target: str, instead: Any
) -> None:
    await engine.cached_tokens(PROMPT, tenant="a")
    monkeypatch.setattr(target, instead)
    receipt = receipt_of(engine, await engine.admin("POST", "/purge", order("a", 1)))
    assert any("recount still found" in fault for fault in receipt_faults(receipt))


async def test_a_policy_without_overwriting_is_owned_up_to(engine: RunningEngine) -> None:
    await engine.cached_tokens(PROMPT, tenant="a")
    answer = await engine.admin("POST", "/purge", order("a", 1, scrub=False))
    receipt = receipt_of(engine, answer)
    assert receipt_faults(receipt) == []
    device = next(tier for tier in receipt.tiers if tier.tier == "device")
    assert (device.method, device.blocks) == ("dropped", receipt.removed)


async def test_evidence_pages_lead_to_the_head(engine: RunningEngine) -> None:
    receipt_of(engine, await engine.admin("POST", "/purge", order("a", 1)))
    everything = EvidencePage.model_validate_json(
        (await engine.admin("GET", "/evidence?since=0")).content
    )
    assert [record.kind for record in everything.records] == ["started", "policy", "purge"]
    assert chain_fault(everything.records, after=ChainHead(), head=everything.head) is None
    rest = EvidencePage.model_validate_json(
        (await engine.admin("GET", "/evidence?since=2")).content
    )
    assert rest.records == everything.records[2:]
    assert code_of(await engine.admin("GET", "/evidence?since=-1")) == (400, "invalid_since")


async def test_drain_turns_readiness_off_and_hands_out_the_log(engine: RunningEngine) -> None:
    first = DrainReply.model_validate_json((await engine.admin("POST", "/drain")).content)
    second = DrainReply.model_validate_json((await engine.admin("POST", "/drain")).content)
    assert first == second
    assert first.final_segment.records[-1].kind == "draining"
    ready = await engine.http.get(engine.url + "/ready")
    assert (ready.status_code, ready.json()["message"]) == (503, "The engine is draining.")


async def test_without_a_bundle_nothing_is_served(tmp_path: Path) -> None:
    async with running_engine(tmp_path, policy=None) as engine:
        assert (await engine.http.get(engine.url + "/ready")).status_code == 503
        answer = await engine.chat({"messages": [{"role": "user", "content": "x"}]})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_policy")
        assert answer.headers["retry-after"] == "1"
        receipt_of(engine, await engine.admin("POST", "/purge", order("a", 4)))
        assert (await engine.admin("PUT", "/policy", push())).status_code == 200
        # The purge's floor holds although the bundle did not know it.
        await engine.cached_tokens(PROMPT, tenant="a", floor=3)
        assert await engine.cached_tokens(PROMPT, tenant="a", floor=3) == 0


async def test_the_pin_is_worth_something(engine: RunningEngine) -> None:
    url = f"https://127.0.0.1:{engine.admin_port}/state"
    async with httpx.AsyncClient() as stranger:
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await stranger.get(url)


async def test_overwriting_lets_other_tenants_decode_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetward_engine.admin.purge.CHUNK_BYTES", 1)
    monkeypatch.setattr("fleetward_engine.admin.purge.slice_seconds", lambda _step: 0.0)
    steps_at_slices: list[int] = []
    overwrite = Engine.overwrite

    def watched(self: Engine, *arguments: Any, **limits: Any) -> tuple[int, int]:
        steps_at_slices.append(self.stats().steps)
        return overwrite(self, *arguments, **limits)

    monkeypatch.setattr(Engine, "overwrite", watched)
    async with running_engine(tmp_path) as engine:
        await engine.cached_tokens(PROMPT * 10, tenant="a")
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1900}
        other = asyncio.create_task(engine.chat(body, tenant="b"))
        await eventually(lambda: engine.stats.running == 1)
        receipt = receipt_of(engine, await engine.admin("POST", "/purge", order("a", 1)))
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
    assert receipt_faults(receipt) == []
    blocks = next(tier.blocks for tier in receipt.tiers if tier.tier == "device")
    assert len(steps_at_slices) == blocks + 1 > 20
    assert steps_at_slices[-1] - steps_at_slices[0] >= blocks // 2


@pytest.mark.parametrize("change", [{"retention": Retention(max_ttl_ms=60)}, {"epoch": 2}])
async def test_shorter_lives_reach_what_requests_in_flight_leave_behind(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    skip = 0.0

    def clock() -> float:
        return time.monotonic() + skip

    async with running_engine(tmp_path, clock=clock, step_ms=5.0) as engine:
        body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 100}
        running = asyncio.create_task(engine.chat(body, tenant="a"))
        await eventually(lambda: engine.stats.running == 1)
        strict = push(2, secret=b"n" * 32 if "epoch" in change else None, **change)
        assert (await engine.admin("PUT", "/policy", strict)).status_code == 200
        assert (await running).status_code == 200
        skip = 3600.0
        await eventually(lambda: engine.stats.cached_blocks == 0)


async def test_shorter_lives_and_a_new_epoch_apply_to_what_is_cached(tmp_path: Path) -> None:
    skip = 0.0

    def clock() -> float:
        return time.monotonic() + skip

    async with running_engine(tmp_path, clock=clock) as engine:
        await engine.cached_tokens(PROMPT)
        skip = 3600.0
        assert await engine.cached_tokens(PROMPT) > 0
        strict = Retention(max_ttl_ms=3_700_000, idle_ttl_ms=600_000)
        answer = await engine.admin("PUT", "/policy", push(2, secret=None, retention=strict))
        assert answer.status_code == 200
        assert await engine.cached_tokens(PROMPT) > 0
        skip = 3800.0
        assert await engine.cached_tokens(PROMPT) == 0
        assert await engine.cached_tokens(PROMPT) > 0
        skip = 4500.0
        assert await engine.cached_tokens(PROMPT) == 0
        rotated = push(3, epoch=2, secret=b"n" * 32, retention=strict)
        assert (await engine.admin("PUT", "/policy", rotated)).status_code == 200
        await eventually(lambda: engine.stats.cached_blocks == 0)
        assert await engine.cached_tokens(PROMPT) == 0
        assert await engine.cached_tokens(PROMPT) > 0
