"""From an authorised request to an engine's answer: pick, sign, send, once more elsewhere."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import aiohttp

from fleetward_api.identity import mint_identity
from fleetward_api.openai import CODE_NO_REPLICA, CODE_UPSTREAM_FAILED
from fleetward_gateway.admission.deadline import remaining_ms
from fleetward_gateway.admission.identity import build_claims
from fleetward_gateway.cluster.view import ClusterView
from fleetward_gateway.metrics import Metrics
from fleetward_gateway.problem import Problem
from fleetward_gateway.proxy.asgi import RequestHead
from fleetward_gateway.proxy.flight import Flight
from fleetward_gateway.proxy.headers import engine_headers
from fleetward_gateway.proxy.upstream import (
    NotDelivered,
    Upstream,
    UpstreamLost,
    UpstreamStalled,
)
from fleetward_gateway.routing.endpoints import Endpoint
from fleetward_gateway.routing.load import EngineLoad
from fleetward_gateway.routing.pick import filter_endpoints, pick_endpoint

MAX_TRIES: Final = 2
_COLD_RETRY_S: Final = 5
_BUSY_RETRY_S: Final = 1


class Dispatcher:
    """Sends requests to engines.

    A request is tried on a second engine only while its body has not left the gateway, so that no
    engine ever works on what another one may have begun.
    """

    def __init__(
        self,
        view: ClusterView,
        upstream: Upstream,
        *,
        metrics: Metrics,
        rng: random.Random,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.load = EngineLoad()
        self._view = view
        self._upstream = upstream
        self._metrics = metrics
        self._rng = rng
        self._wall_clock = wall_clock
        self._clock = clock

    @asynccontextmanager
    async def answer_to(
        self, flight: Flight, head: RequestHead
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An engine's answer; the connection is closed if it is left before its end.

        Raises:
            Problem: 503 when no engine is ready or reachable or it died, 504 when it stalled or
                the request's deadline has passed.
        """
        tried: set[str] = set()
        while True:
            endpoint = self._pick(flight, tried)
            if tried:
                self._metrics.retried(flight.authorisation.model)
            tried.add(endpoint.uid)
            self.load.begin(endpoint.uid)
            try:
                response = await self._try(endpoint, flight, head)
                if response is not None:
                    async with _closed_unless_read(response):
                        yield response
                    return
            finally:
                self.load.end(endpoint.uid)

    def _pick(self, flight: Flight, tried: set[str]) -> Endpoint:
        service = flight.authorisation.service
        ready = self._view.endpoints.ready(service.namespace, service.name)
        suspects = self.load.suspects(self._clock())
        left = filter_endpoints(ready, tried=tried, suspects=suspects)
        endpoint = pick_endpoint(left, in_flight=self.load.in_flight, rng=self._rng)
        if endpoint is None or len(tried) >= MAX_TRIES:
            wait = _BUSY_RETRY_S if ready else _COLD_RETRY_S
            raise Problem(
                503,
                CODE_NO_REPLICA,
                f"No replica of {flight.authorisation.model!r} is ready now; try again.",
                retry_after_s=wait,
            )
        return endpoint

    async def _try(
        self, endpoint: Endpoint, flight: Flight, head: RequestHead
    ) -> aiohttp.ClientResponse | None:
        """The answer, or None when nothing was delivered and another engine may be tried."""
        try:
            response = await self._upstream.open(
                endpoint.address, head.path, headers=self._headers(flight, head), flight=flight
            )
        except NotDelivered:
            self.load.suspect(endpoint.uid, self._clock())
            return None
        except UpstreamLost:
            self.load.suspect(endpoint.uid, self._clock())
            raise lost() from None
        except UpstreamStalled:
            raise stalled() from None
        self.load.trust(endpoint.uid)
        return response

    def _headers(self, flight: Flight, head: RequestHead) -> dict[str, str]:
        keys = self._view.own_keys
        if keys is None:
            raise RuntimeError("a request was admitted before the signing key was known")
        claims = build_claims(
            flight.authorisation,
            jti=secrets.token_hex(16),
            now=self._wall_clock(),
            deadline_ms=remaining_ms(flight.authorisation.deadline, now=self._clock()),
        )
        return engine_headers(
            head, token=mint_identity(claims, keys.signing), length=flight.held_bytes or 0
        )


@asynccontextmanager
async def _closed_unless_read(response: aiohttp.ClientResponse) -> AsyncIterator[None]:
    try:
        yield
    finally:
        # Closing is what tells the engine to stop; releasing would wait for the rest.
        if response.content.at_eof():
            response.release()
        else:
            response.close()


def lost() -> Problem:
    """The engine died, or cut the connection, while it had the request."""
    return Problem(
        503,
        CODE_UPSTREAM_FAILED,
        "The replica that served this request was lost; try again.",
        retry_after_s=_BUSY_RETRY_S,
    )


def stalled() -> Problem:
    """The engine has been silent for too long."""
    return Problem(
        504, CODE_UPSTREAM_FAILED, "The replica that served this request stopped answering."
    )
