"""Who has been admitted: for each pod the pinned certificate and the key of its receipts."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from fleetward_api.admin import MemberState, PurgeOrder
from fleetward_api.bundle import BundleAck, BundlePush, GatewayPush
from fleetward_api.canonical import first_error
from fleetward_api.errors import AdmissionError
from fleetward_api.evidence import Binding
from fleetward_api.isolation_probe import ISOLATION_PROBE_PATH, ProbeOrder, ProbeReport
from fleetward_api.keys import SealingKey, VerifyKey
from fleetward_api.member import open_admission
from fleetward_api.receipt import Receipt
from fleetward_api.signed import Signed
from fleetward_operator.core.pods import PodSeen
from fleetward_operator.edges.member_client import Address, MemberClient
from fleetward_operator.edges.token_review import TokenFacts
from fleetward_operator.errors import MemberError
from fleetward_operator.manifests.names import TOKEN_AUDIENCE

PROBE_GRACE_S = 5.0
"""Beyond its deadline, for an engine to end a step and to answer."""
_Answer = TypeVar("_Answer", bound=BaseModel)
Review = Callable[[str], Awaitable[TokenFacts]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A member whose token the API server has vouched for."""

    uid: str
    kind: str
    receipt_key: VerifyKey
    fingerprint: str
    facts: TokenFacts
    restarts: int
    reviewed_at: int

    @property
    def binding(self) -> str:
        """The admission as evidence records it, as JSON."""
        reviewed = Binding(
            audience=TOKEN_AUDIENCE,
            username=self.facts.username,
            pod_name=self.facts.pod_name,
            pod_uid=self.facts.pod_uid,
            reviewed_at=self.reviewed_at,
        )
        facts = {
            "binding": reviewed.model_dump(mode="json", by_alias=True),
            "certificateFingerprint": self.fingerprint,
            "receiptKey": self.receipt_key.to_b64(),
        }
        return json.dumps(facts, sort_keys=True)


class Members:
    """Admits pods and calls them.

    Args:
        client: the signed client.
        sealing: the operator's sealing key.
        review: asks the API server about a token.
        nonce: a fresh nonce (32 to 128 hex digits).
        port: the members' admin port.
        wall: wall-clock epoch seconds.
    """

    def __init__(
        self,
        client: MemberClient,
        *,
        sealing: SealingKey,
        review: Review,
        nonce: Callable[[], str],
        port: int,
        wall: Callable[[], float],
    ) -> None:
        self._client = client
        self._sealing = sealing
        self._review = review
        self._nonce = nonce
        self._port = port
        self._wall = wall
        self._admitted: dict[str, Admitted] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._admitted.pop(uid, None)
        self._locks.pop(uid, None)

    async def admit(self, pod: PodSeen) -> Admitted:
        """The pod's admission, made now if there is none for this run of its container.

        Raises:
            MemberError: it did not answer.
            AdmissionError: it could not prove who it is.
            KubeError: the API server could not be asked.
        """
        async with self._locks.setdefault(pod.uid, asyncio.Lock()):
            known = self._admitted.get(pod.uid)
            if known is not None and known.restarts == pod.container.restarts:
                return known
            admitted = await self._admit_now(pod)
            self._admitted[pod.uid] = admitted
            return admitted

    async def push_engine(self, pod: PodSeen, push: BundlePush) -> BundleAck:
        """Put a bundle in force in an engine. Raises as `admit`, and `MemberRefused`."""
        return _read(BundleAck, await self._call(pod, "PUT", "/policy", body=push), pod)

    async def push_gateway(self, pod: PodSeen, push: GatewayPush) -> BundleAck:
        """Put floors in force in a gateway. Raises as `admit`, and `MemberRefused`."""
        return _read(BundleAck, await self._call(pod, "PUT", "/policy", body=push), pod)

    async def state(self, pod: PodSeen) -> MemberState:
        """What the member says about itself. Raises as `admit`, and `MemberRefused`."""
        return _read(MemberState, await self._call(pod, "GET", "/state"), pod)

    async def purge(
        self, pod: PodSeen, order: PurgeOrder, *, timeout_s: float
    ) -> tuple[Signed[Receipt], Admitted]:
        """The signed receipt for an order, and the admission that it must be verified against."""
        data = await self._call(pod, "POST", "/purge", body=order, timeout_s=timeout_s)
        admitted = self._admitted[pod.uid]
        return _read(Signed[Receipt], data, pod), admitted

    async def probe_isolation(self, pod: PodSeen, order: ProbeOrder) -> ProbeReport:
        """What an engine saw of its own isolation. Raises as `admit`, and `MemberRefused`."""
        data = await self._call(
            pod,
            "POST",
            ISOLATION_PROBE_PATH,
            body=order,
            timeout_s=order.deadline_ms / 1000 + PROBE_GRACE_S,
        )
        report = _read(ProbeReport, data, pod)
        if report.pod_uid != pod.uid:
            raise MemberError(f"{pod.key} reported as pod {report.pod_uid}, expected {pod.uid}")
        return report

    async def _call(
        self,
        pod: PodSeen,
        method: str,
        path: str,
        *,
        body: object = None,
        timeout_s: float | None = None,
    ) -> bytes:
        admitted = await self.admit(pod)
        try:
            return await self._client.call(
                method,
                path,
                address=self._address(pod),
                fingerprint=admitted.fingerprint,
                body=body,
                timeout_s=timeout_s,
            )
        except MemberError as error:
            # It may have restarted with a new certificate before the kubelet said so.
            if "FingerprintMismatch" in type(error.__cause__).__name__:
                self._admitted.pop(pod.uid, None)
            raise

    async def _admit_now(self, pod: PodSeen) -> Admitted:
        nonce = self._nonce()
        reply, certificate = await self._client.admission(self._address(pod), nonce)
        proof = open_admission(
            reply,
            sealing=self._sealing,
            nonce=nonce,
            peer_certificate_der=certificate,
            expected_pod_uid=pod.uid,
        )
        facts = await self._review(proof.token)
        _check_facts(facts, pod)
        if reply.kind != pod.component:
            raise AdmissionError(f"{pod.key} is labelled {pod.component}, says {reply.kind}")
        return Admitted(
            uid=pod.uid,
            kind=reply.kind,
            receipt_key=VerifyKey.from_b64(proof.receipt_key),
            fingerprint=proof.certificate_fingerprint,
            facts=facts,
            restarts=pod.container.restarts,
            reviewed_at=int(self._wall() * 1000),
        )

    def _address(self, pod: PodSeen) -> Address:
        return Address(host=pod.ip, port=self._port, pod_uid=pod.uid, pod=pod.key)


def _read(model: type[_Answer], data: bytes, pod: PodSeen) -> _Answer:
    """A member's answer. What cannot be read is that member's fault, not its service's."""
    try:
        return model.model_validate_json(data)
    except ValidationError as fault:
        words = first_error(fault)
        raise MemberError(f"{pod.key} gave an answer that cannot be read: {words}") from fault


def _check_facts(facts: TokenFacts, pod: PodSeen) -> None:
    expected = f"system:serviceaccount:{pod.namespace}:{pod.service_account}"
    if not hmac.compare_digest(facts.pod_uid, pod.uid):
        raise AdmissionError(f"the token is of pod {facts.pod_uid}, expected {pod.uid}")
    if facts.username != expected:
        raise AdmissionError(f"the token is of {facts.username}, expected {expected}")
    if pod.service and pod.service_account != pod.service:
        raise AdmissionError(
            f"{pod.key} runs as {pod.service_account}, not as its service's own account"
        )
