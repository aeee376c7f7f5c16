"""The process: its parts put together, started in order, drained, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fleetward_api.member import MemberKeys
from fleetward_gateway.admission.keyring import KeyHasher
from fleetward_gateway.cluster.view import ClusterView
from fleetward_gateway.cluster.watches import Watches, build_watches
from fleetward_gateway.member.admin import MAX_BODY as MAX_ADMIN_BODY
from fleetward_gateway.member.admin import AdminApi
from fleetward_gateway.member.member import Member
from fleetward_gateway.metrics import Metrics
from fleetward_gateway.proxy.body import BodyBudget
from fleetward_gateway.proxy.dispatch import Dispatcher
from fleetward_gateway.proxy.flight import AbortReason, Flights
from fleetward_gateway.proxy.gate import Gate
from fleetward_gateway.proxy.route import CompletionsRoute, Limits
from fleetward_gateway.proxy.upstream import Upstream
from fleetward_gateway.server.listener import Listener
from fleetward_gateway.server.loop_lag import LoopLag
from fleetward_gateway.server.public import build_public_app
from fleetward_gateway.settings import Settings
from fleetward_kube import KubeClient

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_POLL_S = 0.05
_LATER_S = 1.0

logger = logging.getLogger(__name__)


class Gateway:
    """All parts of one gateway; `listeners` are bound, nothing runs yet."""

    def __init__(self, settings: Settings, client: KubeClient, upstream: Upstream) -> None:
        self.settings = settings
        self.view = ClusterView(settings.service_namespaces)
        self.metrics = Metrics()
        self.flights = Flights()
        self.lag = LoopLag()
        self.budget = BodyBudget(settings.bounds.held_bytes)
        hasher = KeyHasher(secrets.token_bytes(32))
        self.watches: Watches = build_watches(
            client,
            self.view,
            hasher=hasher,
            namespace=settings.pod.namespace,
            key_namespace=settings.key_namespace,
        )
        self.member = Member(
            MemberKeys.generate(pod_uid=settings.pod.uid, pod_ip=settings.pod.ip),
            view=self.view,
            flights=self.flights,
            pod_uid=settings.pod.uid,
            version=version("fleetward-operator"),
        )
        self.gate = Gate(
            self.view,
            hasher=hasher,
            metrics=self.metrics,
            wall_clock=time.time,
            synced=lambda: not self.unsynced(),
        )
        ties = random.Random(secrets.randbits(64))  # noqa: S311 - load balancing
        self.dispatcher = Dispatcher(self.view, upstream, metrics=self.metrics, rng=ties)
        self._bind()

    def unsynced(self) -> list[str]:
        """What must still be read from the cluster before requests can be judged."""
        return [*self.watches.unsynced(), *self.view.missing()]

    def not_ready(self) -> list[str]:
        """Why no requests should come now; empty means ready."""
        return [*self.unsynced(), *(["the gateway is draining"] if self.member.draining else [])]

    async def drain(self) -> None:
        """Stop being ready, let requests finish, end the rest, stop listening."""
        self.member.draining = True
        self.public.part()
        logger.info("draining: %d requests in flight", len(self.flights))
        await asyncio.sleep(self.settings.draining.delay_s)
        self.public.close_resting()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.draining.grace_s):
                await self._empty()
        self.flights.abort_all(AbortReason.SHUTDOWN)
        for listener in (self.public, self.admin, self.scrape):
            listener.should_exit = True

    async def _empty(self) -> None:
        while len(self.flights):  # noqa: ASYNC110 - an event would cost the hot path
            await asyncio.sleep(_POLL_S)

    def _bind(self) -> None:
        bounds, ports = self.settings.bounds, self.settings.ports
        completions = CompletionsRoute(
            self.gate,
            self.dispatcher,
            flights=self.flights,
            budget=self.budget,
            limits=Limits(
                bounds.body_bytes, bounds.body_s, bounds.upstream_stall_s, bounds.client_stall_s
            ),
            metrics=self.metrics,
        )
        public = build_public_app(completions, self.gate, not_ready=self.not_ready)
        admin = AdminApi(self.member, self.view, token_file=self.settings.token_file)
        # Later than the route's own limit, which knows whose answer it was: this one is for what
        # is left of an answer that its route has ended.
        stall_s = bounds.client_stall_s + _LATER_S
        self.public = Listener(
            public,
            host=ports.host,
            port=ports.public,
            max_body=bounds.body_bytes,
            write_stall_s=stall_s,
        )
        with self.member.keys.tls_files() as tls:
            self.admin = Listener(
                admin.build_app(),
                host=ports.host,
                port=ports.admin,
                max_body=MAX_ADMIN_BODY,
                write_stall_s=stall_s,
                tls=tls,
            )
        self.scrape = Listener(
            self._metrics_app(),
            host=ports.host,
            port=ports.metrics,
            max_body=0,
            write_stall_s=stall_s,
        )

    def _metrics_app(self) -> Starlette:
        async def metrics(_request: Request) -> Response:
            self.metrics.set_state(
                ready=not self.not_ready(),
                held_bytes=self.budget.held,
                floors_version=self.view.floors.version,
                lag_s=self.lag.take(),
                invalid=dict(Counter(kind for kind, _ in self.view.faults)),
                silence={
                    name: informer.silent_for() for name, informer in self.watches.informers.items()
                },
            )
            return Response(self.metrics.exposition(), media_type=_METRICS_TYPE)

        return Starlette(routes=[Route("/metrics", metrics)])


@asynccontextmanager
async def running_gateway(settings: Settings, environ: Mapping[str, str]) -> AsyncIterator[Gateway]:
    """A gateway that serves while the block runs; a part that fails ends the block."""
    async with (
        KubeClient.from_environment(environ) as client,
        Upstream(first_byte_s=settings.bounds.first_byte_s) as upstream,
    ):
        gateway = Gateway(settings, client, upstream)
        async with asyncio.TaskGroup() as group:
            background = [
                group.create_task(gateway.watches.run()),
                group.create_task(gateway.lag.run()),
            ]
            for listener in (gateway.public, gateway.admin, gateway.scrape):
                group.create_task(listener.serve())
            try:
                yield gateway
            finally:
                for listener in (gateway.public, gateway.admin, gateway.scrape):
                    listener.should_exit = True
                for task in background:
                    task.cancel()
