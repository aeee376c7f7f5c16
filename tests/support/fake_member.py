"""A member of purges (engine or gateway) reduced to its admin port, by the real wire formats."""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass, field

from aiohttp import web

from fleetward_api.admin import (
    ADMIN_HEADER,
    AdminErrorBody,
    KvHolding,
    MemberKind,
    MemberState,
    ModelState,
    PurgeOrder,
    verify_admin_call,
)
from fleetward_api.bundle import (
    BundleAck,
    BundlePush,
    GatewayBundle,
    GatewayPush,
    PolicyBundle,
)
from fleetward_api.canonical import canonical_bytes
from fleetward_api.chain_log import ChainLog
from fleetward_api.errors import AdminError
from fleetward_api.isolation_probe import ProbeLook, ProbeOrder, ProbeReport
from fleetward_api.keys import SealingPublicKey, VerifyKey
from fleetward_api.member import MemberKeys, admission_reply
from fleetward_api.receipt import RECEIPT_DOMAIN, Receipt, TierCounts
from fleetward_api.replay import ReplayGuard
from fleetward_api.signed import sign


@dataclass
class FakeMember:
    """One process. `blocks` is what it says it removes; `faulty` breaks the receipt's sums.

    `silent` names calls that are answered 503, `unknown` those that it does not have; `crosses` are
    identities that find another's cache in a probe. `pushes`, `orders` and `probes` are what came.
    """

    kind: MemberKind
    pod_uid: str
    token: str
    address: str
    port: int
    operator_key: VerifyKey
    sealing_key: SealingPublicKey
    blocks: int = 0
    holdings: tuple[KvHolding, ...] = ()
    faulty: bool = False
    fault: str = ""
    silent: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    crosses: set[str] = field(default_factory=set)
    probes: list[ProbeOrder] = field(default_factory=list)
    pushes: list[PolicyBundle | GatewayBundle] = field(default_factory=list)
    orders: list[PurgeOrder] = field(default_factory=list)
    receipts: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.keys = MemberKeys.generate(pod_uid=self.pod_uid, pod_ip=self.address)
        self._log = ChainLog()
        self._guard = ReplayGuard(1800)
        self._runner: web.AppRunner | None = None

    @property
    def bundle(self) -> PolicyBundle | GatewayBundle | None:
        """The bundle in force."""
        return self.pushes[-1] if self.pushes else None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/admission", self._admission)
        app.router.add_route("*", "/{call:state|policy|purge|isolation-probe}", self._call)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with self.keys.tls_files() as files:
            context.load_cert_chain(*files)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.address, self.port, ssl_context=context).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _admission(self, request: web.Request) -> web.Response:
        reply = admission_reply(
            self.keys,
            kind=self.kind,
            pod_uid=self.pod_uid,
            token=self.token,
            nonce=request.query["nonce"],
            sealing=self.sealing_key,
        )
        return _json(canonical_bytes(reply))

    async def _call(self, request: web.Request) -> web.Response:
        body = await request.read()
        call = request.match_info["call"]
        try:
            verify_admin_call(
                request.headers.get(ADMIN_HEADER),
                method=request.method,
                path=request.path_qs,
                body=body,
                pod_uid=self.pod_uid,
                key=self.operator_key,
                now=time.time(),
                guard=self._guard,
            )
            if call in self.unknown:
                raise AdminError(404, "unknown_call", "Not Found")
            if call in self.silent:
                raise AdminError(503, "silent", "told to be silent")
            return _json(self._answer(call, body))
        except AdminError as fault:
            return _json(canonical_bytes(AdminErrorBody.of(fault)), status=fault.status)

    def _answer(self, call: str, body: bytes) -> bytes:
        if call == "policy":
            return canonical_bytes(self._take(body))
        if call == "purge":
            return self._purge(PurgeOrder.model_validate_json(body))
        if call == "isolation-probe":
            return canonical_bytes(self._probe(ProbeOrder.model_validate_json(body)))
        return canonical_bytes(self._state())

    def _probe(self, order: ProbeOrder) -> ProbeReport:
        self.probes.append(order)
        if self.bundle is None:
            raise AdminError(503, "no_policy", "No policy bundle is in force yet.")
        looks = [
            ProbeLook(identity="the same identity", may_reuse=True, cached_tokens=32),
            *(
                ProbeLook(identity=who, may_reuse=False, cached_tokens=32 * (who in self.crosses))
                for who in ("another tenant", "another document tag")
            ),
        ]
        return ProbeReport(
            pod_uid=self.pod_uid,
            bundle_digest=self.bundle.digest,
            prompt_tokens=33,
            looks=tuple(looks),
        )

    def _take(self, body: bytes) -> BundleAck:
        push = BundlePush if self.kind == "engine" else GatewayPush
        bundle = push.model_validate_json(body).bundle
        if self.bundle is not None and bundle.generation < self.bundle.generation:
            raise AdminError(409, "stale_generation", f"{self.bundle.generation} is in force")
        self.pushes.append(bundle)
        return BundleAck(
            pod_uid=self.pod_uid,
            generation=bundle.generation,
            floors_version=bundle.floors.version,
            digest=bundle.digest,
        )

    def _state(self) -> MemberState:
        model = None if self.fault else ModelState(model_digest="sha256:" + "1" * 64, runner="x")
        return MemberState(
            kind=self.kind,
            pod_uid=self.pod_uid,
            version="1",
            bundle_generation=self.bundle.generation if self.bundle else 0,
            floors_version=self.bundle.floors.version if self.bundle else 0,
            model=model,
            kv_blocks_total=100,
            kv_block_bytes=4096,
            kv_holdings=self.holdings,
            fault=self.fault,
        )

    def _purge(self, order: PurgeOrder) -> bytes:
        self.orders.append(order)
        if order.purge_uid not in self.receipts:
            self.receipts[order.purge_uid] = self._sign(order)
        return self.receipts[order.purge_uid]

    def _sign(self, order: PurgeOrder) -> bytes:
        before = self._log.head
        after = self._log.append("purge", {"uid": order.purge_uid})
        now = int(time.time() * 1000)
        receipt = Receipt(
            purge_uid=order.purge_uid,
            scope_digest=order.scope_digest,
            pod_uid=self.pod_uid,
            key_id=self.keys.receipt_key.verify_key.key_id,
            floor=order.floor,
            tiers=(
                TierCounts(
                    tier="device",
                    blocks=self.blocks,
                    bytes=self.blocks * 4096,
                    method="overwritten" if self.blocks else "none",
                ),
            ),
            chain_before=before.digest,
            chain_after=after.digest,
            sequence_before=before.sequence,
            sequence_after=after.sequence,
            inserted=self.blocks,
            removed=self.blocks,
            probes=self.blocks,
            probe_hits=1 if self.faulty else 0,
            started_at=now,
            finished_at=now,
        )
        return canonical_bytes(sign(receipt, self.keys.receipt_key, domain=RECEIPT_DOMAIN))


def _json(body: bytes, *, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")
