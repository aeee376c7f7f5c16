"""What the gateway does for the operator, apart from HTTP."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from fleetward_api.admin import WIRE_VERSIONS, DrainReply, EvidencePage, MemberState, PurgeOrder
from fleetward_api.bundle import BundleAck, GatewayBundle
from fleetward_api.canonical import canonical_bytes, digest
from fleetward_api.chain_log import ChainHead, ChainLog
from fleetward_api.errors import AdminError, ScopeInvalid
from fleetward_api.floors import Floors
from fleetward_api.member import MemberKeys
from fleetward_api.receipt import RECEIPT_DOMAIN, Receipt, TierCounts
from fleetward_api.scope import Scope, scope_digest
from fleetward_api.signed import sign
from fleetward_gateway.cluster.view import ClusterView
from fleetward_gateway.proxy.flight import Fenced, Flights

KEPT_RECEIPTS: Final = 1024


class Member:
    """Policy in force, fences and receipts of this pod.

    Args:
        keys: made at start, never stored.
        view: holds the floors and the key of scope digests.
        flights: what a fence acts on.
        pod_uid: of this pod.
        version: of this software.
        wall_clock: epoch seconds, for people only.
    """

    def __init__(
        self,
        keys: MemberKeys,
        *,
        view: ClusterView,
        flights: Flights,
        pod_uid: str,
        version: str,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.keys = keys
        self.pod_uid = pod_uid
        self.draining = False
        self._view = view
        self._flights = flights
        self._version = version
        self._wall_clock = wall_clock
        self._log = ChainLog()
        self._generation = 0
        self._digest = ""
        # Purge uid to the digest of its order and the answer's bytes.
        self._receipts: OrderedDict[str, tuple[str, bytes]] = OrderedDict()

    def state(self) -> MemberState:
        """What is in force."""
        return MemberState(
            kind="gateway",
            pod_uid=self.pod_uid,
            version=self._version,
            bundle_generation=self._generation,
            bundle_digest=self._digest,
            floors_version=self._view.floors.version,
            running=len(self._flights),
            draining=self.draining,
            evidence_head=self._log.head,
        )

    def put_policy(self, bundle: GatewayBundle) -> BundleAck:
        """Take a bundle in force.

        Raises:
            AdminError: 400 for one of a wire version that is not spoken here, 409 for one older
                than that in force, or another one of its generation.
        """
        # A later version may fence in ways that this one would read past.
        if bundle.wire_version not in WIRE_VERSIONS:
            spoken = ", ".join(map(str, WIRE_VERSIONS))
            message = f"the bundle's wireVersion is {bundle.wire_version}; spoken: {spoken}"
            raise AdminError(400, "unknown_wire_version", message)
        if bundle.generation < self._generation:
            raise AdminError(409, "stale_generation", f"generation {self._generation} is in force")
        if bundle.generation == self._generation and self._digest not in {"", bundle.digest}:
            raise AdminError(
                409,
                "conflicting_generation",
                f"generation {self._generation} is in force with other content",
            )
        self._view.raise_floors(bundle.floors)
        if bundle.digest != self._digest:
            self._generation, self._digest = bundle.generation, bundle.digest
            self._log.append("policy", {"generation": bundle.generation, "digest": bundle.digest})
        return BundleAck(
            pod_uid=self.pod_uid,
            generation=self._generation,
            floors_version=self._view.floors.version,
            digest=self._digest,
        )

    def purge(self, order: PurgeOrder) -> bytes:
        """Fence a scope and sign what that did; the same bytes for the same purge.

        Raises:
            AdminError: 400 for a scope that is none or a digest that is not its own, 409 for
                another order under the same uid, 503 before the keys are known.
        """
        order_digest = digest(canonical_bytes(order))
        known = self._receipts.get(order.purge_uid)
        if known is not None:
            if known[0] != order_digest:
                raise AdminError(409, "conflicting_order", "this purge came with another order")
            return known[1]
        scope = self._checked_scope(order)
        started = self._now_ms()
        before = self._log.head
        self._view.raise_floors(Floors().at_least(scope, order.floor))
        fenced = self._flights.fence(scope, order.floor, abort=order.in_flight == "Abort")
        after = self._log.append(
            "purge",
            {
                "purgeUid": order.purge_uid,
                "scopeDigest": order.scope_digest,
                "floor": order.floor,
                "dropped": fenced.dropped,
                "aborted": fenced.aborted,
                "finishing": fenced.finishing,
            },
        )
        receipt = self._receipt(order, fenced, before=before, after=after, started=started)
        answer = canonical_bytes(sign(receipt, self.keys.receipt_key, domain=RECEIPT_DOMAIN))
        self._receipts[order.purge_uid] = (order_digest, answer)
        while len(self._receipts) > KEPT_RECEIPTS:
            self._receipts.popitem(last=False)
        return answer

    def evidence(self, since: int) -> EvidencePage:
        """The log after record `since`."""
        return EvidencePage(records=self._log.since(since), head=self._log.head)

    def drain(self) -> DrainReply:
        """Take no new connections' readiness; requests that run go on."""
        self.draining = True
        return DrainReply(running=len(self._flights), final_segment=self.evidence(0))

    def _checked_scope(self, order: PurgeOrder) -> Scope:
        keys = self._view.own_keys
        if keys is None:
            raise AdminError(503, "not_ready", "fleetward-gateway-keys has not been read yet")
        try:
            scope = Scope.from_wire(order.scope)
        except ScopeInvalid as error:
            raise AdminError(400, "invalid_scope", error.message) from None
        if scope_digest(keys.digest, scope) != order.scope_digest:
            raise AdminError(400, "scope_digest", "the digest is not that of the scope")
        return scope

    def _receipt(
        self,
        order: PurgeOrder,
        fenced: Fenced,
        *,
        before: ChainHead,
        after: ChainHead,
        started: int,
    ) -> Receipt:
        bodies = TierCounts(
            tier="bodies",
            blocks=fenced.dropped,
            bytes=fenced.dropped_bytes,
            method="dropped" if fenced.dropped else "none",
        )
        return Receipt(
            purge_uid=order.purge_uid,
            scope_digest=order.scope_digest,
            pod_uid=self.pod_uid,
            key_id=self.keys.receipt_key.verify_key.key_id,
            floor=order.floor,
            tiers=(bodies,),
            in_flight_finished=fenced.finishing,
            in_flight_aborted=fenced.aborted,
            chain_before=before.digest,
            chain_after=after.digest,
            sequence_before=before.sequence,
            sequence_after=after.sequence,
            inserted=fenced.inserted,
            evicted=fenced.evicted,
            removed=fenced.dropped,
            probes=fenced.probes,
            probe_hits=fenced.hits,
            recount=fenced.left,
            started_at=started,
            finished_at=self._now_ms(),
            versions={"fleetward-gateway": self._version},
        )

    def _now_ms(self) -> int:
        return int(self._wall_clock() * 1000)
