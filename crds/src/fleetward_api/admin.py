"""The admin API of a member: signed calls, and every body that crosses it.

A call is signed by the operator over method, path, body digest and the pod it is for, is accepted
once, and only within 15 minutes of its making.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Final, Literal

from pydantic import Field

from fleetward_api.bundle import InFlight
from fleetward_api.canonical import (
    AnswerModel,
    Count,
    Digest,
    HexDigest,
    Name,
    OptionalName,
    Text,
    WireModel,
    canonical_bytes,
    digest,
    parse_model,
)
from fleetward_api.chain_log import ChainHead, ChainRecord
from fleetward_api.errors import AdminError, CanonicalError, SignatureInvalid
from fleetward_api.keys import SigningKey, VerifyKey
from fleetward_api.replay import ReplayGuard
from fleetward_api.scope import ScopeWire
from fleetward_api.signed import Signed, sign, verify

ADMIN_HEADER: Final = "Fleetward-Admin"
WIRE_VERSION_HEADER: Final = "Fleetward-Wire-Version"
WIRE_VERSIONS: Final = (1,)
ADMIN_DOMAIN: Final = "admin-call"
ADMIN_WINDOW_S: Final = 900.0
MAX_HEADER_CHARS: Final = 8192

MemberKind = Literal["engine", "gateway"]


class AdminCall(WireModel):
    """One call, as the operator signs it. `path` includes the query."""

    method: Annotated[str, Field(pattern=r"^[A-Z]{1,16}$")]
    path: Annotated[str, Field(pattern=r"^/[!-~]{0,1023}$")]
    body_sha256: Digest
    pod_uid: Name
    request_id: Name
    issued_at: Count


class SealedProof(WireModel):
    """What a member seals to the operator: its token, and the keys that go with it."""

    token: Annotated[str, Field(min_length=1, max_length=16384, repr=False)]
    nonce: Annotated[str, Field(pattern=r"^[0-9a-f]{32,128}$")]
    pod_uid: Name
    receipt_key: Annotated[str, Field(max_length=64)]
    certificate_fingerprint: Digest


class AdmissionReply(AnswerModel):
    """Answer of `GET /admission`: who the member says it is, and the sealed proof (base64)."""

    kind: MemberKind
    pod_uid: Name
    receipt_key: Annotated[str, Field(max_length=64)]
    certificate_fingerprint: Digest
    sealed_proof: Annotated[str, Field(min_length=1, max_length=65536)]


class MemoryState(AnswerModel):
    """What an engine's memory is for, decided once when the model was loaded. Bytes.

    Of the device's memory or, on a CPU, the container's. `host_kv_bytes` is 0 where host memory
    is another; what none of the parts takes is left alone, as `margin_bytes` is.
    """

    available_bytes: Count
    weights_bytes: Count
    activations_bytes: Count
    kv_bytes: Count
    host_kv_bytes: Count = 0
    runtime_bytes: Count
    margin_bytes: Count

    @property
    def parts(self) -> tuple[tuple[str, int], ...]:
        """What the memory is for, by name, in the order of every table."""
        return (
            ("weights", self.weights_bytes),
            ("activations", self.activations_bytes),
            ("kv", self.kv_bytes),
            ("host_kv", self.host_kv_bytes),
            ("runtime", self.runtime_bytes),
            ("margin", self.margin_bytes),
        )


class ModelState(AnswerModel):
    """What an engine resolved its model to; no memory where it computes nothing."""

    model_digest: OptionalName = ""
    adapter_digest: OptionalName = ""
    tokenizer_digest: OptionalName = ""
    chat_template_digest: OptionalName = ""
    engine_version: OptionalName = ""
    kv_layout: Annotated[str, Field(max_length=1024)] = ""
    runner: OptionalName = ""
    memory: MemoryState | None = None


class KvHolding(AnswerModel):
    """What a tenant has cached under one retention class (`""`: the policy's own times).

    Attributes:
        blocks: KV blocks that a lookup can find.
        hits: how often one was found, since the engine started.
        oldest_age_ms: time since the oldest of them was made.
    """

    tenant: Name
    retention_class: OptionalName = ""
    blocks: Count
    hits: Count
    oldest_age_ms: Count


MAX_KV_HOLDINGS: Final = 256
"""Holdings in one `MemberState`, the largest first; those beyond are left out."""


class MemberState(AnswerModel):
    """Answer of `GET /state`.

    Attributes:
        bundle_generation, bundle_digest, floors_version: in force; 0 and `""` before the first.
        epoch: number of the epoch whose secret the engine holds; 0 for none.
        model: None on a gateway, and on an engine whose model could not load (`fault` says why).
        kv_blocks_used, kv_blocks_total: device blocks.
        kv_block_bytes: bytes of one.
        kv_holdings: what each tenant has cached on the device.
        host_kv_blocks_total: blocks that host memory may hold now; host_kv_block_bytes: of one.
        host_kv_holdings: what each tenant has cached there.
    """

    kind: MemberKind
    pod_uid: Name
    version: OptionalName = ""
    wire_versions: Annotated[tuple[int, ...], Field(max_length=16)] = WIRE_VERSIONS
    bundle_generation: Count = 0
    bundle_digest: OptionalName = ""
    floors_version: Count = 0
    epoch: Count = 0
    model: ModelState | None = None
    kv_blocks_used: Count = 0
    kv_blocks_total: Count = 0
    kv_block_bytes: Count = 0
    kv_holdings: Annotated[tuple[KvHolding, ...], Field(max_length=MAX_KV_HOLDINGS)] = ()
    host_kv_blocks_total: Count = 0
    host_kv_block_bytes: Count = 0
    host_kv_holdings: Annotated[tuple[KvHolding, ...], Field(max_length=MAX_KV_HOLDINGS)] = ()
    running: Count = 0
    waiting: Count = 0
    draining: bool = False
    evidence_head: ChainHead = ChainHead()
    fault: Text = ""


class PurgeOrder(WireModel):
    """Body of `POST /purge`; answered with `Signed[Receipt]`, the same bytes for the same uid."""

    purge_uid: Name
    scope: ScopeWire
    scope_digest: HexDigest
    floor: Count
    in_flight: InFlight = "Finish"
    scrub: bool = True
    deadline_ms: Count


class EvidencePage(AnswerModel):
    """Answer of `GET /evidence?since=N`: the member's own log after record N, and its head."""

    records: tuple[ChainRecord, ...] = ()
    head: ChainHead = ChainHead()


class DrainReply(AnswerModel):
    """Answer of `POST /drain`: requests still running, and the log's last records."""

    running: Count = 0
    final_segment: EvidencePage = EvidencePage()


class AdminErrorDetail(AnswerModel):
    """A stable code and a sentence."""

    code: Name
    message: Text


class AdminErrorBody(AnswerModel):
    """Body of every error answer of the admin API."""

    error: AdminErrorDetail

    @classmethod
    def of(cls, fault: AdminError) -> AdminErrorBody:
        """Return the body that answers `fault`."""
        return cls(error=AdminErrorDetail(code=fault.code, message=fault.message[:4096]))


def sign_admin_call(
    *,
    method: str,
    path: str,
    body: bytes,
    pod_uid: str,
    key: SigningKey,
    now: float,
    request_id: str,
) -> str:
    """Return the `Fleetward-Admin` header of one call: base64url of a signed `AdminCall`."""
    call = AdminCall(
        method=method,
        path=path,
        body_sha256=digest(body),
        pod_uid=pod_uid,
        request_id=request_id,
        issued_at=int(now),
    )
    envelope = canonical_bytes(sign(call, key, domain=ADMIN_DOMAIN))
    return base64.urlsafe_b64encode(envelope).rstrip(b"=").decode()


def verify_admin_call(
    header: str | None,
    *,
    method: str,
    path: str,
    body: bytes,
    pod_uid: str,
    key: VerifyKey,
    now: float,
    guard: ReplayGuard,
) -> AdminCall:
    """Return the call that the operator signed, if it is this one, for this pod, now, and new.

    Raises:
        AdminError: the answer to send: 401 `missing`, `malformed`, `forged`, `wrong_call`,
            `wrong_pod`, `stale` or `replayed`.
    """
    if not header:
        raise AdminError(401, "missing", f"the call carries no {ADMIN_HEADER} header")
    envelope = _read_header(header)
    try:
        call = verify(envelope, key, domain=ADMIN_DOMAIN)
    except SignatureInvalid as fault:
        raise AdminError(401, "forged", f"not signed by the operator: {fault}") from fault
    if (call.method, call.path, call.body_sha256) != (method, path, digest(body)):
        raise AdminError(401, "wrong_call", "the signature is for another method, path or body")
    if call.pod_uid != pod_uid:
        raise AdminError(401, "wrong_pod", "the call is for another pod")
    if not abs(now - call.issued_at) <= ADMIN_WINDOW_S:
        raise AdminError(401, "stale", "the call was made more than 15 minutes from now")
    if not guard.accept(call.request_id, call.issued_at + ADMIN_WINDOW_S, now):
        raise AdminError(401, "replayed", "the call was accepted before")
    return call


def check_wire_version(header: str | None) -> int:
    """Return the wire version that a caller speaks; absent means the oldest that we speak.

    Raises:
        AdminError: 400 `unknown_wire_version`, naming those spoken.
    """
    spoken = {str(version): version for version in WIRE_VERSIONS}
    text = str(min(WIRE_VERSIONS)) if header is None else header
    if text not in spoken:
        known = ", ".join(spoken)
        raise AdminError(
            400, "unknown_wire_version", f"wire version {text[:16]!r}; spoken: {known}"
        )
    return spoken[text]


def _read_header(header: str) -> Signed[AdminCall]:
    if len(header) > MAX_HEADER_CHARS:
        raise AdminError(401, "malformed", f"the {ADMIN_HEADER} header is too long")
    try:
        padded = header.encode("ascii") + b"=" * (-len(header) % 4)
        raw = base64.b64decode(padded, altchars=b"-_", validate=True)
        envelope = parse_model(Signed[AdminCall], raw)
    except (UnicodeEncodeError, binascii.Error, CanonicalError) as fault:
        raise AdminError(401, "malformed", f"the {ADMIN_HEADER} header: {fault}") from fault
    if base64.urlsafe_b64encode(raw).rstrip(b"=").decode() != header:
        raise AdminError(401, "malformed", f"the {ADMIN_HEADER} header has another spelling")
    return envelope
