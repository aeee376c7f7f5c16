"""What every worker function is given: the operator's parts, wired once the lease is held."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field

from fleetward_operator.core.observed import ServiceConfig
from fleetward_operator.core.purge.retention import RetainWatch
from fleetward_operator.core.salt_rotation import FirstSight
from fleetward_operator.edges.bundles import EngineWords
from fleetward_operator.edges.catalog import Catalog
from fleetward_operator.edges.events import EventRecorder
from fleetward_operator.edges.evidence_store import EvidenceStore
from fleetward_operator.edges.executor import Executor
from fleetward_operator.edges.fleet import Fleet
from fleetward_operator.edges.holds import PodHolds
from fleetward_operator.edges.members import Members
from fleetward_operator.edges.metrics import Metrics
from fleetward_operator.edges.own_writes import OwnWrites
from fleetward_operator.edges.purge_crew import PurgeCrew
from fleetward_operator.edges.purge_record import PurgeRecords
from fleetward_operator.edges.pusher import Pusher
from fleetward_operator.edges.release_keys import SecretStore
from fleetward_operator.edges.status_writer import StatusWriter
from fleetward_operator.edges.store import Store
from fleetward_operator.edges.writer import Writer
from fleetward_operator.settings import Settings

Enqueue = Callable[[str, str], None]
"""`enqueue(worker, key)`."""
EnqueueLater = Callable[[str, str, float], None]
"""`enqueue_later(worker, key, seconds)`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Time, for the workers."""

    monotonic: Callable[[], float]
    now: Callable[[], dt.datetime]

    def wall(self) -> float:
        """Wall-clock epoch seconds."""
        return self.now().timestamp()


@dataclass(slots=True, kw_only=True)
class Operator:
    """The parts of a leading operator."""

    settings: Settings
    config: ServiceConfig
    clock: Clock
    store: Store
    catalog: Catalog
    own_writes: OwnWrites
    writer: Writer
    executor: Executor
    statuses: StatusWriter
    events: EventRecorder
    secrets: SecretStore
    fleet: Fleet
    members: Members
    words: EngineWords
    pusher: Pusher
    crew: PurgeCrew
    records: PurgeRecords
    evidence: EvidenceStore
    holds: PodHolds
    enqueue: Enqueue
    metrics: Metrics
    push_retries: dict[str, tuple[int, float]] = field(default_factory=dict)
    retain: RetainWatch = field(default_factory=RetainWatch)
    epoch_seen: FirstSight | None = None
    refused_purges: dict[str, float] = field(default_factory=dict)
    """By uid of a deleted Tenant: when (monotonic) its purge was first refused."""
