"""Admission and signed calls, over real TLS with a member's real keys."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiohttp import web

from e2e.cluster.ports import free_port
from fleetward_api.admin import PurgeOrder
from fleetward_api.bundle import BundlePush, PolicyBundle, ServiceRef
from fleetward_api.errors import AdmissionError
from fleetward_api.keys import SealingKey, SigningKey
from fleetward_api.member import MemberKeys
from fleetward_api.scope import ScopeWire
from fleetward_operator.core.pods import PodSeen
from fleetward_operator.edges.member_client import MemberClient, MemberRefused
from fleetward_operator.edges.members import Members
from fleetward_operator.edges.metrics import Metrics
from fleetward_operator.edges.token_review import TokenFacts, read_review
from fleetward_operator.errors import MemberError
from tests.support.fake_member import FakeMember
from tests.support.operator_facts import pod

OPERATOR, SEALING = SigningKey.generate(), SealingKey.generate()
USER = "system:serviceaccount:apps:demo"
BUNDLE = PolicyBundle(
    service=ServiceRef(namespace="apps", name="demo", uid="s"), generation=4, epoch=1
)


@pytest.fixture
async def member() -> AsyncIterator[FakeMember]:
    made = FakeMember(
        kind="engine",
        pod_uid="uid-a",
        token="its token",
        address="127.0.0.1",
        port=free_port(),
        operator_key=OPERATOR.verify_key,
        sealing_key=SEALING.public,
    )
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def calls() -> AsyncIterator[MemberClient]:
    numbers = itertools.count()
    client = MemberClient(
        key=OPERATOR,
        wall=time.time,
        request_id=lambda: f"request-{next(numbers)}",
        metrics=Metrics(),
        may_call=lambda: True,
        timeout_s=5.0,
    )
    await client.open()
    yield client
    await client.close()


def members(
    calls: MemberClient,
    member: FakeMember,
    *,
    facts: TokenFacts | None = None,
    sealing: SealingKey = SEALING,
) -> Members:
    told = facts or TokenFacts(username=USER, pod_uid="uid-a", pod_name="a")

    async def review(token: str) -> TokenFacts:
        assert token == "its token"
        return told

    return Members(
        calls,
        sealing=sealing,
        review=review,
        nonce=lambda: "ab" * 16,
        port=member.port,
        wall=lambda: 1.0,
    )


def local(**changes: object) -> PodSeen:
    return replace(pod("a"), ip="127.0.0.1", **changes)  # type: ignore[arg-type]


async def test_an_admitted_member_takes_a_bundle_and_signs_a_receipt(
    member: FakeMember, calls: MemberClient
) -> None:
    crew = members(calls, member)
    ack = await crew.push_engine(local(), BundlePush(bundle=BUNDLE))
    assert (ack.generation, ack.digest) == (4, BUNDLE.digest)
    order = PurgeOrder(
        purge_uid="p", scope=ScopeWire(tenant="t"), scope_digest="a" * 64, floor=1, deadline_ms=9
    )
    signed, admitted = await crew.purge(local(), order, timeout_s=5)
    again, _ = await crew.purge(local(), order, timeout_s=5)
    assert signed == again
    assert admitted.receipt_key == member.keys.receipt_key.verify_key
    assert admitted.fingerprint == member.keys.certificate_fingerprint


@pytest.mark.parametrize(
    "facts",
    [
        TokenFacts(username=USER, pod_uid="another", pod_name="a"),
        TokenFacts(username="system:serviceaccount:other:demo", pod_uid="uid-a", pod_name="a"),
    ],
)
async def test_a_token_of_another_pod_or_account_admits_nobody(
    member: FakeMember, calls: MemberClient, facts: TokenFacts
) -> None:
    with pytest.raises(AdmissionError, match="expected"):
        await members(calls, member, facts=facts).admit(local())
    assert member.pushes == []


async def test_a_pod_that_does_not_run_as_its_services_account_is_refused(
    member: FakeMember, calls: MemberClient
) -> None:
    told = TokenFacts(username="system:serviceaccount:apps:default", pod_uid="uid-a", pod_name="a")
    with pytest.raises(AdmissionError, match="own account"):
        await members(calls, member, facts=told).admit(local(service_account="default"))


async def test_a_pod_labelled_as_something_else_is_refused(
    member: FakeMember, calls: MemberClient
) -> None:
    with pytest.raises(AdmissionError, match="labelled gateway, says engine"):
        await members(calls, member).admit(local(component="gateway", service=""))


async def test_a_proof_for_another_operator_cannot_be_read(
    member: FakeMember, calls: MemberClient
) -> None:
    with pytest.raises(AdmissionError, match="cannot be read"):
        await members(calls, member, sealing=SealingKey.generate()).admit(local())


async def test_another_certificate_after_admission_gets_no_call(
    member: FakeMember, calls: MemberClient
) -> None:
    crew = members(calls, member)
    await crew.admit(local())
    await member.stop()
    await calls.close()
    await calls.open()
    member.keys = MemberKeys.generate(pod_uid="uid-a", pod_ip="127.0.0.1")
    await member.start()
    with pytest.raises(MemberError, match="did not answer"):
        await crew.push_engine(local(), BundlePush(bundle=BUNDLE))
    assert member.pushes == []
    # The process is a new one: it is admitted anew, by a new proof.
    await crew.push_engine(local(), BundlePush(bundle=BUNDLE))
    assert len(member.pushes) == 1


async def test_a_container_that_restarted_is_admitted_anew(
    member: FakeMember, calls: MemberClient
) -> None:
    crew = members(calls, member)
    first = await crew.admit(local())
    assert await crew.admit(local()) is first
    later = local()
    restarted = replace(later, container=replace(later.container, restarts=1))
    assert await crew.admit(restarted) is not first


async def test_a_refusal_keeps_its_code_and_an_absent_member_is_named(
    member: FakeMember, calls: MemberClient
) -> None:
    crew = members(calls, member)
    await crew.push_engine(local(), BundlePush(bundle=BUNDLE))
    older = BUNDLE.model_copy(update={"generation": 3})
    with pytest.raises(MemberRefused, match="stale_generation") as refused:
        await crew.push_engine(local(), BundlePush(bundle=older))
    assert (refused.value.status, refused.value.code) == (409, "stale_generation")
    await member.stop()
    await calls.close()
    await calls.open()
    with pytest.raises(MemberError, match="apps/a did not answer"):
        await crew.state(local())


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"authenticated": True},
        {"authenticated": True, "audiences": ["another"]},
        {"authenticated": False, "audiences": ["fleetward-operator"], "error": "expired"},
        {"authenticated": True, "audiences": ["fleetward-operator"], "user": {"extra": {}}},
    ],
)
def test_a_review_that_proves_no_pod_is_refused(status: dict[str, object]) -> None:
    with pytest.raises(AdmissionError):
        read_review(status)


async def test_an_answer_that_comes_in_pieces_is_read_whole(
    member: FakeMember, calls: MemberClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = member._answer

    async def in_pieces(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        data = whole("state", b"")
        for piece in (data[:40], data[40:]):
            await answer.write(piece)
            await asyncio.sleep(0.05)
        return answer

    monkeypatch.setattr(member, "_call", in_pieces)
    await member.stop()
    await member.start()
    state = await members(calls, member).state(local())
    assert state.pod_uid == "uid-a"


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"no JSON", b"x" * (1 << 20) + b"x"])
async def test_an_answer_that_makes_no_sense_is_the_members_fault(
    member: FakeMember, calls: MemberClient, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    monkeypatch.setattr(member, "_answer", lambda *_: body)
    crew = members(calls, member)
    with pytest.raises(MemberError, match="apps/a"):
        await crew.state(local())
    with pytest.raises(MemberError, match="apps/a"):
        await crew.push_engine(local(), BundlePush(bundle=BUNDLE))
