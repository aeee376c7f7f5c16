"""The gateway as a member of purges, over its real TLS port."""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
import time
from typing import Any

import pytest

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
from fleetward_api.bundle import BundleAck, GatewayBundle, GatewayPush
from fleetward_api.canonical import canonical_bytes, parse_model
from fleetward_api.chain_log import ChainHead, chain_fault
from fleetward_api.floors import Floors
from fleetward_api.keys import SigningKey
from fleetward_api.member import open_admission
from fleetward_api.receipt import RECEIPT_DOMAIN, Receipt, receipt_faults
from fleetward_api.scope import Scope, scope_digest
from fleetward_api.signed import Signed, verify
from tests.support.eventually import eventually
from tests.support.fake_engine import FakeEngine, events, hangs
from tests.support.gateway import DIGEST_KEY, KEY_A, KEY_B, GatewayUnderTest

FIRST = b'data: {"n":1}\n\n'


class Operator:
    """Calls the admin port as the operator does."""

    def __init__(self, gateway: GatewayUnderTest) -> None:
        self.gateway = gateway
        self.number = 0
        self.tls = ssl.create_default_context()
        self.tls.check_hostname = False
        self.tls.verify_mode = ssl.CERT_NONE

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.gateway.gateway.admin.port}"

    def header(self, method: str, path: str, body: bytes, **changed: Any) -> str:
        self.number += 1
        call = {
            "method": method,
            "path": path,
            "body": body,
            "pod_uid": "uid-gateway-0",
            "key": self.gateway.operator,
            "now": time.time(),
            "request_id": f"call-{self.number}",
        }
        return sign_admin_call(**{**call, **changed})

    async def call(
        self, method: str, path: str, body: object = None, *, header: str | None = None
    ) -> tuple[int, bytes]:
        data = b"" if body is None else canonical_bytes(body)
        signed = self.header(method, path, data) if header is None else header
        headers = {ADMIN_HEADER: signed, WIRE_VERSION_HEADER: "1"}
        async with self.gateway.session.request(
            method, self.url + path, data=data, headers=headers, ssl=self.tls
        ) as response:
            return response.status, await response.read()


@pytest.fixture
def operator(served: GatewayUnderTest) -> Operator:
    return Operator(served)


def order(uid: str = "purge-1", *, tenant: str = "a", floor: int = 1, **fields: Any) -> PurgeOrder:
    scope = Scope(tenant)
    return PurgeOrder(
        purge_uid=uid,
        scope=scope.to_wire(),
        scope_digest=fields.pop("digest", scope_digest(DIGEST_KEY, scope)),
        floor=floor,
        deadline_ms=60_000,
        **fields,
    )


def receipt_of(answer: bytes, operator: Operator) -> Receipt:
    signed = parse_model(Signed[Receipt], answer)
    key = operator.gateway.gateway.member.keys.receipt_key.verify_key
    return verify(signed, key, domain=RECEIPT_DOMAIN)


async def test_admission_proves_the_pod_to_the_operator_alone(operator: Operator) -> None:
    nonce = "0123456789abcdef" * 2
    url = f"{operator.url}/admission?nonce={nonce}"
    async with operator.gateway.session.get(url, ssl=operator.tls) as response:
        assert response.status == 200
        reply = AdmissionReply.model_validate_json(await response.read())
    der = ssl.PEM_cert_to_DER_cert(
        await asyncio.to_thread(
            ssl.get_server_certificate, ("127.0.0.1", operator.gateway.gateway.admin.port)
        )
    )
    proof = open_admission(
        reply,
        sealing=operator.gateway.sealing,
        nonce=nonce,
        peer_certificate_der=der,
        expected_pod_uid="uid-gateway-0",
    )
    assert proof.token == "service-account-token"
    assert reply.kind == "gateway"
    assert "service-account-token" not in reply.sealed_proof
    assert reply.certificate_fingerprint == "sha256:" + hashlib.sha256(der).hexdigest()


async def test_admission_refuses_a_bad_nonce(operator: Operator) -> None:
    for nonce in ("", "xyz", "00"):
        url = f"{operator.url}/admission?nonce={nonce}"
        async with operator.gateway.session.get(url, ssl=operator.tls) as response:
            assert response.status == 400
            assert set((await response.json())["error"]) == {"code", "message"}


async def test_only_the_operators_fresh_call_for_this_pod_is_taken(operator: Operator) -> None:
    stranger = SigningKey.generate()
    bad = {
        "missing": "",
        "malformed": "x",
        "forged": operator.header("GET", "/state", b"", key=stranger),
        "wrong_pod": operator.header("GET", "/state", b"", pod_uid="another"),
        "stale": operator.header("GET", "/state", b"", now=time.time() - 1000),
        "wrong_call": operator.header("GET", "/evidence", b""),
    }
    for code, header in bad.items():
        status, answer = await operator.call("GET", "/state", header=header)
        assert (status, json.loads(answer)["error"]["code"]) == (401, code)
    once = operator.header("GET", "/state", b"")
    assert (await operator.call("GET", "/state", header=once))[0] == 200
    status, answer = await operator.call("GET", "/state", header=once)
    assert (status, json.loads(answer)["error"]["code"]) == (401, "replayed")


async def test_a_changed_body_and_unknown_calls_are_refused(operator: Operator) -> None:
    header = operator.header("POST", "/purge", b"{}")
    status, answer = await operator.call("POST", "/purge", order(), header=header)
    assert (status, json.loads(answer)["error"]["code"]) == (401, "wrong_call")
    assert (await operator.call("GET", "/nothing"))[0] == 404
    assert (await operator.call("GET", "/purge"))[0] == 405
    status, answer = await operator.call("PUT", "/policy", {"bundle": {"generation": -1}})
    assert (status, json.loads(answer)["error"]["code"]) == (400, "invalid_body")
    async with operator.gateway.session.get(
        operator.url + "/state", headers={WIRE_VERSION_HEADER: "9"}, ssl=operator.tls
    ) as response:
        assert response.status == 400
        assert (await response.json())["error"]["code"] == "unknown_wire_version"


@pytest.mark.parametrize("version", [0, 2, "1", None])
async def test_a_bundle_of_another_wire_version_is_refused(
    operator: Operator, version: object
) -> None:
    member = operator.gateway.gateway.member
    before = member.state()
    bundle = GatewayBundle.of(Floors(version=7, tenants={"a": 7}))
    body = json.loads(canonical_bytes(GatewayPush(bundle=bundle)))
    assert body["bundle"]["wireVersion"] == 1
    body["bundle"]["wireVersion"] = version
    status, answer = await operator.call("PUT", "/policy", body)
    error = json.loads(answer)["error"]
    code = "unknown_wire_version" if version == 2 else "invalid_body"
    assert (status, error["code"]) == (400, code)
    assert "wireVersion" in error["message"]
    assert member.state() == before
    assert operator.gateway.gateway.view.floors.tenants == {}


async def test_policy_raises_floors_and_acks_what_is_in_force(operator: Operator) -> None:
    async def push(floors: Floors) -> tuple[int, bytes]:
        bundle = GatewayBundle.of(floors)
        return await operator.call("PUT", "/policy", GatewayPush(bundle=bundle))

    second = Floors(version=5, tenants={"a": 2})
    status, answer = await push(second)
    assert status == 200
    ack = BundleAck.model_validate_json(answer)
    assert (ack.generation, ack.floors_version) == (5, 5)
    assert ack.digest == GatewayBundle.of(second).digest
    assert await push(second) == (200, answer)
    status, answer = await push(Floors(version=4))
    assert (status, json.loads(answer)["error"]["code"]) == (409, "stale_generation")
    status, answer = await push(Floors(version=5, tenants={"a": 1}))
    assert (status, json.loads(answer)["error"]["code"]) == (409, "conflicting_generation")
    # Floors only grow, also against a later bundle that forgot one.
    await push(Floors(version=6, tenants={"b": 1}))
    assert operator.gateway.gateway.view.floors.tenants == {"a": 2, "b": 1}
    state = MemberState.model_validate_json((await operator.call("GET", "/state"))[1])
    assert (state.kind, state.bundle_generation, state.floors_version) == ("gateway", 6, 6)


async def test_a_purge_of_nothing_is_a_receipt_of_zeros_and_repeats_itself(
    operator: Operator,
) -> None:
    status, answer = await operator.call("POST", "/purge", order(floor=4))
    assert status == 200
    receipt = receipt_of(answer, operator)
    assert receipt_faults(receipt) == []
    assert (receipt.removed, receipt.in_flight_aborted, receipt.floor) == (0, 0, 4)
    assert receipt.scope_digest != "a"
    assert await operator.call("POST", "/purge", order(floor=4)) == (200, answer)
    assert (await operator.call("POST", "/purge", order(floor=5)))[0] == 409
    assert operator.gateway.gateway.view.floors.tenants == {"a": 4}


async def test_a_purge_aborts_the_tenants_requests_and_no_others(
    operator: Operator, served: GatewayUnderTest, engine: FakeEngine
) -> None:
    served.put_service(tenants=("a", "b"))
    engine.behaviour = events(FIRST, then="hang")
    mine, other = await served.post(), await served.post(key=KEY_B)
    for response in (mine, other):
        assert await response.content.readany() == FIRST
    engine.behaviour = hangs
    engine.arrived.clear()
    waiting = asyncio.create_task(status_and_code(served))
    await asyncio.wait_for(engine.arrived.wait(), 20)
    _, answer = await operator.call("POST", "/purge", order(in_flight="Abort"))
    receipt = receipt_of(answer, operator)
    assert receipt_faults(receipt) == []
    assert (receipt.in_flight_aborted, receipt.in_flight_finished) == (2, 0)
    assert (receipt.inserted, receipt.evicted, receipt.removed) == (2, 2, 0)
    rest = await mine.content.read()
    assert json.loads(rest.removeprefix(b"data: "))["error"]["code"] == "purged"
    assert await waiting == (503, "purged")
    assert len(served.gateway.flights) == 1
    other.close()
    await eventually(lambda: len(served.gateway.flights) == 0)


async def status_and_code(gateway: GatewayUnderTest) -> tuple[int, str]:
    async with gateway.post() as response:
        return response.status, (await response.json())["error"]["code"]


async def test_a_purge_that_lets_requests_finish_leaves_those_with_an_engine(
    operator: Operator, served: GatewayUnderTest, engine: FakeEngine
) -> None:
    engine.behaviour = events(FIRST, then="hang")
    running = await served.post()
    assert await running.content.readany() == FIRST
    _, answer = await operator.call("POST", "/purge", order(in_flight="Finish"))
    receipt = receipt_of(answer, operator)
    assert receipt_faults(receipt) == []
    assert (receipt.in_flight_aborted, receipt.in_flight_finished) == (0, 1)
    assert len(served.gateway.flights) == 1
    running.close()


async def test_a_body_that_is_held_for_a_retry_is_dropped_by_a_purge(
    operator: Operator, served: GatewayUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    connecting = asyncio.Event()

    async def never_connects(*_: object, **__: object) -> None:
        connecting.set()
        await asyncio.sleep(60)

    monkeypatch.setattr(served.gateway.dispatcher._upstream, "open", never_connects)
    waiting = asyncio.create_task(status_and_code(served))
    await asyncio.wait_for(connecting.wait(), 20)
    assert served.gateway.budget.held > 0
    _, answer = await operator.call("POST", "/purge", order(in_flight="Finish"))
    receipt = receipt_of(answer, operator)
    assert receipt_faults(receipt) == []
    assert (receipt.removed, receipt.in_flight_aborted, receipt.probes) == (1, 1, 1)
    assert receipt.tiers[0].method == "dropped"
    assert receipt.tiers[0].bytes == len(b'{"model": "m"}')
    assert await waiting == (503, "purged")
    assert served.gateway.budget.held == 0


async def test_a_request_authorised_before_the_fence_never_carries_the_new_floor(
    operator: Operator, served: GatewayUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    dispatcher = served.gateway.dispatcher
    headers = dispatcher._headers

    def noting(flight: Any, head: Any) -> dict[str, str]:
        seen.append(flight.authorisation.floors[0])
        served.gateway.view.raise_floors(Floors(version=9, tenants={"a": 9}))
        return headers(flight, head)

    monkeypatch.setattr(dispatcher, "_headers", noting)
    dead = FakeEngine()
    await dead.start()
    served.put_engines(dead, dead)
    await dead.stop()
    async with served.post() as response:
        assert response.status == 503
    assert seen == [0, 0]


async def test_a_finer_scope_is_fenced_and_one_of_another_digest_refused(
    operator: Operator,
) -> None:
    user = Scope("a", user="u" * 64)
    finer = PurgeOrder(
        purge_uid="p",
        scope=user.to_wire(),
        scope_digest=scope_digest(DIGEST_KEY, user),
        floor=1,
        deadline_ms=1,
    )
    assert (await operator.call("POST", "/purge", finer))[0] == 200
    status, answer = await operator.call("POST", "/purge", order(digest="0" * 64))
    assert (status, json.loads(answer)["error"]["code"]) == (400, "scope_digest")


async def test_evidence_is_a_chain_and_drain_hands_it_out(operator: Operator) -> None:
    for number in range(3):
        await operator.call("POST", "/purge", order(f"p{number}", floor=number + 1))
    page = EvidencePage.model_validate_json((await operator.call("GET", "/evidence?since=0"))[1])
    assert [record.kind for record in page.records] == ["purge"] * 3
    assert chain_fault(page.records, after=ChainHead(), head=page.head) is None
    later = EvidencePage.model_validate_json((await operator.call("GET", "/evidence?since=2"))[1])
    assert later.records == page.records[2:]
    assert (await operator.call("GET", "/evidence?since=-1"))[0] == 400
    reply = DrainReply.model_validate_json((await operator.call("POST", "/drain"))[1])
    assert reply.final_segment == page
    async with operator.gateway.session.get(operator.gateway.url + "/readyz") as response:
        assert response.status == 503
    text = page.model_dump_json()
    assert KEY_A not in text
    assert '"a"' not in text
