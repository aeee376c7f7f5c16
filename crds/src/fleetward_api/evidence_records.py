"""The records of purge evidence: one canonical JSON line each, signed by the operator and chained.

Order in a file: one header (the cut), the expected members, one outcome per member (its receipt,
the kubelet's word that it is dead, or why neither is there), one footer.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from fleetward_api.admin import MemberKind
from fleetward_api.bundle import WireVersion
from fleetward_api.canonical import Count, Digest, HexDigest, Name, OptionalName, Text, WireModel
from fleetward_api.chain_log import ChainHead
from fleetward_api.receipt import Receipt
from fleetward_api.scope import ScopeKind
from fleetward_api.signed import Signed

EVIDENCE_DOMAIN: Final = "evidence"
ADMISSION_AUDIENCE: Final = "fleetward-operator"
MAX_ITEMS: Final = 65_536
Phase = Literal["Completed", "Incomplete"]

STANDARD_NOT_COVERED: Final = (
    "answers: answers of the model that were already delivered",
    "transient: text and activations in process memory (strings, allocator and library scratch)",
    "clients: copies that clients keep",
    "other-logs: logs of other systems",
    "crashed-memory: memory of crashed processes until the kernel reuses it",
    "swap: swap and hibernation images",
    "driver-memory: accelerator memory that a driver keeps for other contexts",
    "evidence-backups: backups of the evidence itself",
)
"""What no purge covers, as `id: words`. Every evidence lists each id."""


class Cut(WireModel):
    """The write that fenced the scope: everything authorised before it is what the purge is about.

    Attributes:
        floor: of the scope, from this write on. floors_version: of all floors.
        resource_version: of the ConfigMap that holds the floors, as the API server gave it.
    """

    floor: Annotated[Count, Field(ge=1)]
    floors_version: Count
    resource_version: OptionalName = ""


class PolicyInForce(WireModel):
    """The policy of one service while the purge ran. `generation` is the bundle's."""

    service: Name
    service_uid: Name
    generation: Count
    policy_name: OptionalName = ""
    policy_generation: Count = 0


class Header(WireModel):
    """First record: what was purged, from which cut, and the evidence before this one.

    Attributes:
        widened_to: the coarser kind of scope that was purged instead, or `""`.
        previous: number and digest of the evidence before; 0 and the genesis digest for the first.
        sequence: number of this evidence: one above the previous.
        operator_key: base64 of the public key that signs every record.
    """

    kind: Literal["header"] = "header"
    wire_version: WireVersion = 1
    sequence: Annotated[Count, Field(ge=1)]
    previous: ChainHead
    purge_uid: Name
    purge_name: OptionalName = ""
    scope_digest: HexDigest
    scope_kind: ScopeKind
    widened_to: ScopeKind | Literal[""] = ""
    cut: Cut
    epoch: Count = 0
    policies: Annotated[tuple[PolicyInForce, ...], Field(max_length=MAX_ITEMS)] = ()
    operator_key: Annotated[str, Field(max_length=64)]
    started_at: Count

    @property
    def about(self) -> str:
        """Which purge it is, and of what kind of scope, for people."""
        widened = ", widened to it" if self.widened_to else ""
        return f"{self.purge_uid} ({self.scope_kind}{widened})"


class Binding(WireModel):
    """What the API server said when it reviewed the member's token (TokenReview)."""

    audience: Name
    username: Name
    pod_name: Name
    pod_uid: Name
    reviewed_at: Count


class Member(WireModel):
    """A pod that existed at the cut, so that an outcome is owed for it.

    Attributes:
        receipt_key: base64; `""`, with no binding, for a pod that was never admitted.
        certificate_fingerprint: of its admin port; `""` likewise.
    """

    kind: Literal["member"] = "member"
    member: MemberKind
    pod_uid: Name
    pod_name: Name
    namespace: OptionalName = ""
    receipt_key: Annotated[str, Field(max_length=64)] = ""
    certificate_fingerprint: OptionalName = ""
    binding: Binding | None = None


class ReceiptRecord(WireModel):
    """A member's receipt, as it signed it."""

    kind: Literal["receipt"] = "receipt"
    receipt: Signed[Receipt]


class Dead(WireModel):
    """A member whose containers ended, in the kubelet's words, at milliseconds since the epoch."""

    kind: Literal["dead"] = "dead"
    pod_uid: Name
    words: Annotated[Text, Field(min_length=1)]
    at: Count


class Unproved(WireModel):
    """A member of which neither removal nor death could be shown."""

    kind: Literal["unproved"] = "unproved"
    pod_uid: Name
    reason: Annotated[Text, Field(min_length=1)]


class Totals(WireModel):
    """Sums that the verifier does again. `records` counts every line, the footer's too."""

    members: Count = 0
    receipts: Count = 0
    dead: Count = 0
    unproved: Count = 0
    blocks: Count = 0
    bytes: Count = 0
    records: Count = 0


class Footer(WireModel):
    """Last record: the verdict.

    Attributes:
        phase: `Completed` exactly when `not_shown` is empty.
        not_covered: what the protocol never covers, as `id: words`.
        not_shown: what this purge should have shown and could not, as `pod uid: words`.
    """

    kind: Literal["footer"] = "footer"
    phase: Phase
    not_covered: Annotated[tuple[Text, ...], Field(max_length=MAX_ITEMS)]
    not_shown: Annotated[tuple[Text, ...], Field(max_length=MAX_ITEMS)] = ()
    totals: Totals
    completed_at: Count


Outcome = ReceiptRecord | Dead | Unproved
Body = Annotated[
    Header | Member | ReceiptRecord | Dead | Unproved | Footer, Field(discriminator="kind")
]


class EvidenceRecord(WireModel):
    """What one line signs: its number from 1, the digest of the whole line before, its body."""

    sequence: Annotated[Count, Field(ge=1)]
    previous: Digest
    body: Body
