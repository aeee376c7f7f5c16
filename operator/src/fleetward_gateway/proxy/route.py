"""The hot route: completions and tokenization, passed on by one raw ASGI object."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from fleetward_api.openai import CODE_INTERNAL, CODE_OVERLOADED, CODE_PURGED
from fleetward_gateway.admission.identity import Authorisation
from fleetward_gateway.metrics import Metrics
from fleetward_gateway.problem import Problem
from fleetward_gateway.proxy.asgi import (
    ABORT_EXTENSION,
    Answer,
    ClientGone,
    ClientStalled,
    Receive,
    RequestHead,
    Scope,
    Send,
)
from fleetward_gateway.proxy.body import (
    BodyBudget,
    HeldBody,
    check_head,
    read_asked,
    receive_body,
)
from fleetward_gateway.proxy.dispatch import Dispatcher
from fleetward_gateway.proxy.events import error_event
from fleetward_gateway.proxy.flight import AbortReason, Flight, Flights
from fleetward_gateway.proxy.gate import Gate
from fleetward_gateway.proxy.relay import TruncatedAnswer, relay

WHOLE_ANSWERS: Final = 32 << 20
"""Bytes of larger answers that may be held whole at once."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one request.

    Attributes:
        body_bytes: largest body.
        body_s: seconds for a body to arrive.
        upstream_stall_s: seconds of silence inside an engine's answer.
        client_stall_s: seconds for which a client may take nothing.
    """

    body_bytes: int
    body_s: float
    upstream_stall_s: float
    client_stall_s: float


class CompletionsRoute:
    """Authenticate, read, authorise, dispatch, relay; every refusal in OpenAI's shape."""

    def __init__(
        self,
        gate: Gate,
        dispatcher: Dispatcher,
        *,
        flights: Flights,
        budget: BodyBudget,
        limits: Limits,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gate = gate
        self._dispatcher = dispatcher
        self._flights = flights
        self._budget = budget
        self._room = BodyBudget(WHOLE_ANSWERS)
        self._limits = limits
        self._metrics = metrics
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request (ASGI)."""
        head = RequestHead(scope)
        answer = Answer(send, request_id=head.request_id, stall_s=self._limits.client_stall_s)
        labels = Labels()
        self._metrics.began()
        try:
            await self._serve(head, receive, answer, labels)
        except Problem as problem:
            await _refuse(answer, problem)
        except (ClientGone, ClientStalled, TruncatedAnswer) as error:
            self._metrics.aborted(_REASONS[type(error)])
            # One who left needs no reset, and it would overtake a refusal that is on its way.
            if not isinstance(error, ClientGone):
                _reset(scope)
        except Exception:
            # The traceback names code, never content: no exception of ours carries a body.
            logger.exception("request %s failed", head.request_id.decode())
            await _refuse(answer, internal_error())
        finally:
            self._metrics.ended()
            if answer.started:
                self._metrics.answered(code=answer.status, model=labels.model, tenant=labels.tenant)

    async def _serve(
        self, head: RequestHead, receive: Receive, answer: Answer, labels: Labels
    ) -> None:
        began = self._clock()
        grant = self._gate.authenticate(head)
        labels.tenant = grant.tenant.name
        check_head(head, limit=self._limits.body_bytes)
        held = HeldBody(self._budget)
        try:
            await receive_body(
                receive, held, limit=self._limits.body_bytes, within_s=self._limits.body_s
            )
            asked = read_asked(held.join())
            authorisation = self._gate.authorise(grant, asked, head, began=began)
            labels.model = authorisation.model
            await self._fly(
                authorisation, held, head=head, receive=receive, answer=answer, began=began
            )
        finally:
            held.release()

    async def _fly(
        self,
        authorisation: Authorisation,
        held: HeldBody,
        *,
        head: RequestHead,
        receive: Receive,
        answer: Answer,
        began: float,
    ) -> None:
        with self._flights.begin(authorisation, held) as flight:
            try:
                async with _watching_client(receive, flight):
                    await self._exchange(flight, head, answer, began)
            except asyncio.CancelledError:
                if flight.abort_reason is None:
                    raise
                _uncancel()
                self._metrics.aborted(flight.abort_reason)
        if flight.abort_reason in _EXPLAINED and not answer.complete:
            await _refuse(answer, _EXPLAINED[flight.abort_reason]())

    async def _exchange(
        self, flight: Flight, head: RequestHead, answer: Answer, began: float
    ) -> None:
        model = flight.authorisation.model

        def on_first_byte() -> None:
            self._metrics.first_byte(model, self._clock() - began)

        sent = self._clock()
        async with self._dispatcher.answer_to(flight, head) as response:
            await relay(
                response,
                answer,
                stall_s=self._limits.upstream_stall_s,
                room=self._room,
                on_first_byte=on_first_byte,
            )
        self._metrics.upstream_done(model, self._clock() - sent)


@dataclass(slots=True)
class Labels:
    """What the metrics of a request may say of it, as far as it is known."""

    model: str = ""
    tenant: str = ""


_REASONS = {
    ClientGone: AbortReason.CLIENT_GONE.value,
    ClientStalled: "client_stalled",
    TruncatedAnswer: "engine_lost",
}


@asynccontextmanager
async def _watching_client(receive: Receive, flight: Flight) -> AsyncIterator[None]:
    """Abort the flight when the client leaves, also while no byte has gone either way."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        flight.abort(AbortReason.CLIENT_GONE)

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()


async def _refuse(answer: Answer, problem: Problem) -> None:
    """Say it with a status while that is possible, else inside the stream."""
    try:
        if not answer.started:
            await answer.problem(problem)
        elif not answer.complete:
            await answer.finish(error_event(problem))
    except ClientStalled:
        logger.info("request %s: the client took no answer", answer.request_id.decode())


def _uncancel() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


def _reset(scope: Scope) -> None:
    """Cut the client's connection; nothing that is still buffered would be taken anyway."""
    abort = scope.get("extensions", {}).get(ABORT_EXTENSION)
    if abort is not None:
        abort()


def _purged() -> Problem:
    return Problem(
        503,
        CODE_PURGED,
        "The cache that this request is about is being purged; it was ended. Try again.",
        retry_after_s=1,
    )


def _shutting_down() -> Problem:
    return Problem(
        503, CODE_OVERLOADED, "This gateway is shutting down; try again.", retry_after_s=1
    )


_EXPLAINED: dict[AbortReason | None, Callable[[], Problem]] = {
    AbortReason.PURGED: _purged,
    AbortReason.SHUTDOWN: _shutting_down,
}


def internal_error() -> Problem:
    """A fault of the gateway itself."""
    return Problem(500, CODE_INTERNAL, "The gateway failed on this request; it has been logged.")
