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
    sign_admin_call,
)
from fleetward_api.bundle import Retention
from fleetward_api.chain_log import ChainHead, chain_fault
from fleetward_api.floors import Floors
from fleetward_api.keys import SigningKey
from fleetward_api.member import open_admission
from fleetward_engine.server.openai_models import ChatCompletionBody
from fleetward_engine.server.prompt import Prompt, PromptEncoder
from tests.support.engine_server import POD_UID, RunningEngine, push, running_engine
from tests.support.eventually import eventually
from tests.support.purge_orders import PROMPT, code_of, order, receipt_of

NONCE = "ab" * 16


@pytest_asyncio.fixture
async def engine(tmp_path: Path) -> AsyncIterator[RunningEngine]:
    async with running_engine(tmp_path) as running:
        yield running


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
    assert code_of(await engine.admin("PUT", "/policy", newer.bundle)) == (400, "invalid_body")
    state = MemberState.model_validate_json((await engine.admin("GET", "/state")).content)
    assert (state.bundle_generation, state.bundle_digest) == (5, newer.bundle.digest)
    assert state.model is not None
    assert state.model.runner == "simulated"
    assert state.kv_blocks_total == 512


async def test_a_push_whose_fence_did_not_fall_is_not_in_force(
    engine: RunningEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_arguments: Any) -> None:
        raise RuntimeError("once")

    raised = push(2, secret=None, floors=Floors(version=1, tenants={"a": 1}))
    with monkeypatch.context() as broken:
        broken.setattr("fleetward_engine.admin.fences.Fences.raise_all", fail)
        assert code_of(await engine.admin("PUT", "/policy", raised)) == (500, "internal")
    state = MemberState.model_validate_json((await engine.admin("GET", "/state")).content)
    assert state.bundle_generation == 1
    assert (await engine.admin("PUT", "/policy", raised)).status_code == 200
    assert (await engine.admin("GET", "/state")).json()["bundleGeneration"] == 2


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


async def test_a_policy_change_governs_requests_that_are_still_being_read(
    engine: RunningEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go = asyncio.Event(), asyncio.Event()
    encode = PromptEncoder.chat

    async def slow(self: PromptEncoder, body: ChatCompletionBody) -> Prompt:
        entered.set()
        await go.wait()
        return await encode(self, body)

    monkeypatch.setattr(PromptEncoder, "chat", slow)
    asking = asyncio.create_task(engine.cached_tokens(PROMPT))
    await entered.wait()
    strict = push(2, secret=None, retention=Retention(max_ttl_ms=1))
    assert (await engine.admin("PUT", "/policy", strict)).status_code == 200
    go.set()
    await asking
    await eventually(lambda: engine.stats.cached_blocks == 0)
