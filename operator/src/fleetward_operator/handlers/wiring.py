"""Puts the operator's parts together. The only place that knows how they are made."""

from __future__ import annotations

import datetime as dt
import os
import secrets
import time
import uuid

from fleetward_kube import KubeClient
from fleetward_operator.core.observed import ServiceConfig
from fleetward_operator.edges.bootstrap import begin
from fleetward_operator.edges.bundles import EngineWords
from fleetward_operator.edges.catalog import Catalog
from fleetward_operator.edges.events import EventRecorder
from fleetward_operator.edges.evidence_store import EvidenceStore
from fleetward_operator.edges.executor import Executor
from fleetward_operator.edges.fleet import Fleet
from fleetward_operator.edges.floors_store import FloorsStore
from fleetward_operator.edges.holds import PodHolds
from fleetward_operator.edges.member_client import MemberClient
from fleetward_operator.edges.members import Members
from fleetward_operator.edges.metrics import Metrics
from fleetward_operator.edges.own_writes import OwnWrites
from fleetward_operator.edges.purge_crew import PurgeCrew
from fleetward_operator.edges.purge_record import PurgeRecords
from fleetward_operator.edges.pusher import Pusher
from fleetward_operator.edges.release_keys import ReleaseKeys, SecretStore
from fleetward_operator.edges.status_writer import StatusWriter
from fleetward_operator.edges.store import Store
from fleetward_operator.edges.token_review import TokenFacts, review_token
from fleetward_operator.edges.writer import Writer
from fleetward_operator.handlers.context import Clock, Enqueue, Operator
from fleetward_operator.manifests.desired import Environment
from fleetward_operator.settings import Settings

NONCE_BYTES = 16


def system_clock() -> Clock:
    """The machine's own clocks."""
    return Clock(monotonic=time.monotonic, now=lambda: dt.datetime.now(dt.UTC))


async def build_operator(
    client: KubeClient,
    writer: Writer,
    store: Store,
    *,
    settings: Settings,
    own_writes: OwnWrites,
    catalog: Catalog,
    metrics: Metrics,
    enqueue: Enqueue,
) -> tuple[Operator, MemberClient]:
    """The parts of a leading operator: reads its keys, epoch and floors, makes missing ones.

    Needs a synced store and the lease. The caller closes the member client.
    """
    clock = system_clock()
    namespace, timeout_s = settings.identity.namespace, settings.timings.request_timeout
    secret_store = SecretStore(
        client, writer, namespace=namespace, entropy=os.urandom, now=clock.now
    )
    keys = await secret_store.release_keys()
    floors = FloorsStore(client, writer, namespace=namespace)
    epoch = await begin(floors, secret_store, store)
    fleet = Fleet(store=store, catalog=catalog, floors=floors, keys=keys, epoch=epoch)
    calls = MemberClient(
        key=keys.signing,
        wall=clock.wall,
        request_id=lambda: uuid.uuid4().hex,
        metrics=metrics,
        may_call=writer.leads,
        timeout_s=settings.timings.member_timeout,
    )
    await calls.open()

    async def review(token: str) -> TokenFacts:
        return await review_token(client, token, timeout_s=timeout_s)

    members = Members(
        calls,
        sealing=keys.sealing,
        review=review,
        nonce=lambda: secrets.token_hex(NONCE_BYTES),
        port=settings.ports.member_admin,
        wall=clock.wall,
    )
    words = EngineWords()
    pusher = Pusher(fleet, members, words)
    operator = Operator(
        settings=settings,
        config=service_config(settings, keys),
        clock=clock,
        store=store,
        catalog=catalog,
        own_writes=own_writes,
        writer=writer,
        executor=Executor(client, writer, own_writes),
        statuses=StatusWriter(client, writer, own_writes, newest=store.get, clock=clock.monotonic),
        events=EventRecorder(writer, instance=settings.identity.pod_name, wall=clock.now),
        secrets=secret_store,
        fleet=fleet,
        members=members,
        words=words,
        pusher=pusher,
        crew=PurgeCrew(client, fleet, members, pusher, wall=clock.wall),
        records=PurgeRecords(client, writer, namespace=namespace),
        evidence=EvidenceStore(client, writer, namespace=namespace),
        holds=PodHolds(client, writer),
        enqueue=enqueue,
        metrics=metrics,
    )
    return operator, calls


def service_config(settings: Settings, keys: ReleaseKeys) -> ServiceConfig:
    """What the release decides for every service."""
    return ServiceConfig(
        rules=settings.engine,
        environment=Environment(
            release_namespace=settings.identity.namespace,
            pull_policy=settings.engine.pull_policy,
            scraper_namespaces=settings.engine.scraper_namespaces,
            pull_secrets=settings.engine.pull_secrets,
            accelerator_runtime_class=settings.engine.accelerator_runtime_class,
        ),
        keys=keys.public,
        gateway_url=settings.gateway_url,
    )
