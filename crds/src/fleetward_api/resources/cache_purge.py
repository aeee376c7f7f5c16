"""CachePurge: destroy a scope's cache everywhere, once, and leave evidence."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from fleetward_api.resources.base import ApiModel
from fleetward_api.resources.condition import Conditions
from fleetward_api.resources.lists import DistinctValues, KeyedBy
from fleetward_api.resources.rules import Rule, TransitionRule
from fleetward_api.resources.scalars import (
    BigCount,
    Count,
    LabelName,
    LongDuration,
    MessageText,
    ShortText,
)
from fleetward_api.resources.selectors import LabelSelector
from fleetward_api.resources.whole import Resource, name_rule

PurgePhase: TypeAlias = Literal[
    "Pending", "Fencing", "Purging", "Verifying", "Completed", "Incomplete"
]
_Text: TypeAlias = Annotated[str, Field(max_length=512)]
_FINER: Final = ("user", "permission_scope", "document_tag")


class CachePurgeSpec(ApiModel):
    """What to destroy, why, and by when. It cannot be changed: create another purge instead."""

    tenant: LabelName
    """Name of the Tenant whose cache is destroyed; the Tenant itself may be gone already."""
    user: ShortText | None = None
    """Only this user's cache, by the name that the application gives (`Fleetward-User`)."""
    permission_scope: ShortText | None = None
    """Only cache made by callers with this permission scope, whatever others they have too."""
    document_tag: ShortText | None = None
    """Only cache of requests with this document tag (`Fleetward-Document-Tags`)."""
    service_selector: LabelSelector | None = None
    """Only services with these labels; all services when absent."""
    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    """Why, for the people who read the evidence later."""
    deadline: LongDuration = "1m"
    """Longest time until the purge is Completed; after it, it is Incomplete and says why."""
    on_coarse_isolation: Literal["Widen", "Refuse"] = "Widen"
    """What happens where reuse is coarser than the asked scope (a user's, while the CachePolicy of
    any service has isolation Tenant; a permission scope's, while any has permissionScopes Ignore):
    the purge is widened to what can be told apart (and the status says so before it runs), or
    refused."""

    rules = (
        Rule(
            cel="[has(self.user), has(self.permissionScope), has(self.documentTag)]"
            ".filter(given, given).size() <= 1",
            message=(
                "spec names more than one of user, permissionScope and documentTag: create a "
                "CachePurge for each"
            ),
            holds=lambda spec: sum(getattr(spec, name) is not None for name in _FINER) <= 1,
        ),
    )
    transition_rules = (
        TransitionRule(
            cel="self == oldSelf",
            message="the spec of a CachePurge cannot be changed: create another CachePurge",
            holds=lambda new, old: new == old,
        ),
    )


class ReceiptSummary(ApiModel):
    """One member's receipt in short; the signed one is in the evidence."""

    pod_uid: _Text
    """Uid of the member's pod."""
    pod_name: _Text | None = None
    """Namespace and name of the pod."""
    kind: Literal["Engine", "Gateway"]
    """What the member is."""
    key_id: _Text | None = None
    """Id of the key that signed the receipt."""
    blocks: BigCount = 0
    """Blocks removed."""
    bytes: BigCount = 0
    """Bytes overwritten or dropped."""
    digest: _Text | None = None
    """SHA-256 of the signed receipt."""


class NotCovered(ApiModel):
    """Something that the purge could not show."""

    subject: _Text
    """The pod, sink or copy in question."""
    reason: Annotated[str, Field(max_length=1024)]
    """Why it could not be shown."""


class CachePurgeStatus(ApiModel):
    """How far the purge is."""

    message: MessageText | None = None
    """The state in one sentence."""
    observed_generation: BigCount | None = None
    """metadata.generation that this status speaks of."""
    phase: PurgePhase | None = None
    """The step the purge is in; Completed and Incomplete are final."""
    widened_to: _Text | None = None
    """The wider scope that is purged because reuse is coarser than asked."""
    scope_digest: _Text | None = None
    """Keyed digest of the scope, as receipts and evidence name it."""
    floor: BigCount | None = None
    """Floor of the scope from this purge on."""
    cut: _Text | None = None
    """Resource version at which the floor was raised."""
    members: Count = 0
    """Engines and gateways that had to answer."""
    proved_members: Count = 0
    """Members that signed a receipt or are proved dead."""
    blocks: BigCount = 0
    """Blocks removed by all members together."""
    bytes: BigCount = 0
    """Bytes overwritten or dropped by all members together."""
    receipts: Annotated[tuple[ReceiptSummary, ...], Field(max_length=1000), KeyedBy("pod_uid")] = ()
    """Receipts in short, at most 1000; the evidence holds all of them."""
    evidence_digest: _Text | None = None
    """SHA-256 of the evidence."""
    evidence_config_maps: Annotated[
        tuple[_Text, ...], Field(max_length=1000), DistinctValues()
    ] = ()
    """ConfigMaps in the release namespace that hold the evidence, in order."""
    started_at: _Text | None = None
    """When the floor was raised (UTC)."""
    completed_at: _Text | None = None
    """When the purge ended (UTC)."""
    not_covered: Annotated[tuple[NotCovered, ...], Field(max_length=1000), KeyedBy("subject")] = ()
    """What could not be shown; never empty when Incomplete."""
    conditions: Conditions = ()
    """The conditions of the purge; docs/conditions.md explains types and reasons."""


class CachePurge(Resource):
    """Destroys the cache of a scope in every engine and gateway, once, and leaves evidence."""

    kind: Literal["CachePurge"] = "CachePurge"
    spec: CachePurgeSpec
    status: CachePurgeStatus = CachePurgeStatus()

    rules = (name_rule(63),)
