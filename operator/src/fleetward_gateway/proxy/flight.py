"""Requests in flight: what each one holds, and how it is ended from outside.

A body is held from its authorisation until it is handed to a connection; only that long may a try
be repeated elsewhere. The ledger counts bodies by owner, so that a purge can compare what it
dropped with what was taken in and let go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from fleetward_api.owner import Owner
from fleetward_api.scope import Scope
from fleetward_gateway.admission.identity import Authorisation
from fleetward_gateway.proxy.body import HeldBody
from fleetward_gateway.proxy.body_ledger import BodyLedger


class AbortReason(StrEnum):
    """Why a request was ended from outside."""

    CLIENT_GONE = "client_gone"
    PURGED = "purged"
    SHUTDOWN = "shutdown"


class Flight:
    """One authorised request."""

    __slots__ = ("_flights", "_held", "_task", "abort_reason", "authorisation")

    def __init__(self, authorisation: Authorisation, held: HeldBody, flights: Flights) -> None:
        self.authorisation = authorisation
        self.abort_reason: AbortReason | None = None
        self._held: HeldBody | None = held
        self._flights = flights
        self._task: asyncio.Task[None] | None = None

    @property
    def owner(self) -> Owner:
        """Every scope that it is in, with the scope's floor when it was authorised."""
        return self.authorisation.owner

    @property
    def held_bytes(self) -> int | None:
        """Size of the body that is held; None when it is held no more."""
        return None if self._held is None else self._held.size

    def take_body(self) -> bytes:
        """The body, for the one connection that it goes to; it is not held after this.

        Raises:
            RuntimeError: it was taken or dropped before: a second execution would follow.
        """
        if self._held is None:
            raise RuntimeError("the body of this request was already handed over")
        body = self._held.join()
        self._let_go()
        self._flights.ledger.left(self.owner)
        return body

    def drop_body(self) -> int:
        """Forget the body for a purge; its size in bytes."""
        size = self.held_bytes or 0
        self._let_go()
        return size

    def abort(self, reason: AbortReason) -> None:
        """End the work on this request; the first reason counts. Harmless once it is over."""
        if self._task is not None and self.abort_reason is None:
            self.abort_reason = reason
            self._task.cancel()

    def enter(self) -> None:
        """Work begins, in the current task."""
        self._task = asyncio.current_task()

    def leave(self) -> None:
        """Work is over; a body that nobody took is let go."""
        self._task = None
        if self._held is not None:
            self._let_go()
            self._flights.ledger.left(self.owner)

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.release()
            self._held = None


@dataclass(frozen=True, slots=True)
class Fenced:
    """What a fence did to the requests of a scope that were authorised below the floor.

    Attributes:
        inserted, evicted: bodies taken in and let go before this fence: a tenant's since the
            start, a finer scope's of owners with a body here now.
        dropped, dropped_bytes: bodies that it dropped; their requests were aborted.
        finishing: requests left to finish: their bodies are with an engine, not here.
        aborted: requests that it aborted, with those of dropped bodies.
        probes, hits: dropped bodies asked for again, and how many were still there.
        left: bodies that a scan still found afterwards.
    """

    inserted: int
    evicted: int
    dropped: int
    dropped_bytes: int
    finishing: int
    aborted: int
    probes: int
    hits: int
    left: int


class Flights:
    """All requests in flight, and the ledger of their bodies."""

    def __init__(self) -> None:
        self._flights: set[Flight] = set()
        self.ledger = BodyLedger()

    def __len__(self) -> int:
        return len(self._flights)

    @contextmanager
    def begin(self, authorisation: Authorisation, held: HeldBody) -> Iterator[Flight]:
        """Register a request for as long as the block runs."""
        flight = Flight(authorisation, held, self)
        self._flights.add(flight)
        self.ledger.came(flight.owner)
        flight.enter()
        try:
            yield flight
        finally:
            flight.leave()
            self._flights.discard(flight)

    def held_below(self, scope: Scope, floor: int) -> list[Flight]:
        """Requests authorised below the floor whose bodies are still held (a full scan)."""
        return [f for f in self._below(scope, floor) if f.held_bytes is not None]

    def fence(self, scope: Scope, floor: int, *, abort: bool) -> Fenced:
        """Drop what is held of a scope from below the floor, and end or leave the rest.

        Args:
            scope: whose requests.
            floor: requests authorised with a lower one are older than the purge.
            abort: also end requests that are already with an engine.
        """
        inserted, evicted = self.ledger.below(scope, floor)
        older = self._below(scope, floor)
        holding = [flight for flight in older if flight.held_bytes is not None]
        dropped_bytes = 0
        for flight in holding:
            dropped_bytes += flight.drop_body()
            self.ledger.left(flight.owner)
        ended = older if abort else holding
        for flight in ended:
            flight.abort(AbortReason.PURGED)
        return Fenced(
            inserted=inserted,
            evicted=evicted,
            dropped=len(holding),
            dropped_bytes=dropped_bytes,
            finishing=len(older) - len(ended),
            aborted=len(ended),
            probes=len(holding),
            hits=sum(flight.held_bytes is not None for flight in holding),
            left=len(self.held_below(scope, floor)),
        )

    def abort_all(self, reason: AbortReason) -> None:
        """End every request."""
        for flight in list(self._flights):
            flight.abort(reason)

    def _below(self, scope: Scope, floor: int) -> list[Flight]:
        return [flight for flight in self._flights if flight.owner.is_below(scope, floor)]
