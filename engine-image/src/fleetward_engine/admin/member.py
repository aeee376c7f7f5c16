"""This engine as a member of purges: its keys, its log, and what it says of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fleetward_api.admin import AdmissionReply, DrainReply, EvidencePage, MemberState
from fleetward_api.chain_log import ChainLog
from fleetward_api.errors import AdminError, AdmissionError
from fleetward_api.member import MemberKeys, admission_reply
from fleetward_engine.admin.holdings import tell_holdings
from fleetward_engine.server.service import EngineService
from fleetward_engine.server.trust import Trust, TrustMissing, TrustStore
from fleetward_engine.version import engine_version

PAGE_RECORDS = 1000
"""Records in one answer; a reader asks again from the last one until it has the head."""


@dataclass(frozen=True, slots=True)
class Member:
    """Keys made at start, and the hash-chained log of what was done with cache."""

    keys: MemberKeys
    pod_uid: str
    token_path: Path
    trust: TrustStore
    clock: Callable[[], float]
    log: ChainLog = field(default_factory=ChainLog)

    def trusted(self) -> Trust:
        """The public keys in force. Raises `AdminError` 503 while none are mounted."""
        try:
            return self.trust.current(self.clock())
        except TrustMissing as fault:
            raise AdminError(503, "trust_unavailable", f"no public keys: {fault}") from fault

    def admission(self, nonce: str) -> AdmissionReply:
        """Prove who we are to whoever holds the operator's sealing key.

        Raises:
            AdminError: 400 for a malformed nonce, 503 without a ServiceAccount token.
        """
        sealing = self.trusted().sealing
        try:
            token = self.token_path.read_text("utf-8").strip()
            if not token:
                raise AdminError(503, "token_unavailable", f"{self.token_path} is empty")
            return admission_reply(
                self.keys,
                kind="engine",
                pod_uid=self.pod_uid,
                token=token,
                nonce=nonce,
                sealing=sealing,
            )
        except OSError as fault:
            message = f"no ServiceAccount token: {fault}"
            raise AdminError(503, "token_unavailable", message) from fault
        except AdmissionError as fault:
            raise AdminError(400, "bad_nonce", fault.message) from fault

    def page(self, since: int) -> EvidencePage:
        """The log's records after number ``since``, oldest first, and its head."""
        return EvidencePage(records=self.log.since(since)[:PAGE_RECORDS], head=self.log.head)

    def started(self) -> None:
        """Open the log with who we are."""
        key_id = self.keys.receipt_key.verify_key.key_id
        body = {"podUid": self.pod_uid, "keyId": key_id, "version": engine_version()}
        self.log.append("started", body)

    def drain(self, service: EngineService) -> DrainReply:
        """Turn readiness off and hand out the last records; asking again is the same."""
        if not service.drain.draining:
            service.drain.start(service.clock())
            self.log.append("draining", {"unfinished": service.unfinished})
        records = self.log.since(max(0, self.log.head.sequence - PAGE_RECORDS))
        segment = EvidencePage(records=records, head=self.log.head)
        return DrainReply(running=service.unfinished, final_segment=segment)

    def state(self, service: EngineService) -> MemberState:
        """What is in force and how loaded we are; the fault's words if there is one."""
        policy, model, stats = service.policy, service.model, service.stats()
        return MemberState(
            kind="engine",
            pod_uid=self.pod_uid,
            version=engine_version(),
            bundle_generation=policy.bundle.generation if policy else 0,
            bundle_digest=policy.bundle.digest if policy else "",
            floors_version=policy.floors.version if policy else 0,
            epoch=policy.bundle.epoch if policy else 0,
            model=model.state if model else None,
            kv_blocks_used=stats.kv_blocks_used if stats else 0,
            kv_blocks_total=stats.kv_blocks_total if stats else 0,
            kv_block_bytes=stats.kv_block_bytes if stats else 0,
            kv_holdings=tell_holdings(stats.holdings, service.clock()) if stats else (),
            host_kv_blocks_total=stats.host.slots if stats else 0,
            host_kv_block_bytes=stats.host.slot_bytes if stats else 0,
            host_kv_holdings=tell_holdings(stats.host.holdings, service.clock()) if stats else (),
            running=stats.running if stats else 0,
            waiting=stats.waiting if stats else 0,
            draining=service.drain.draining,
            evidence_head=self.log.head,
            fault=service.fault,
        )
