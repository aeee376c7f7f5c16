"""The engine as the HTTP handlers see it: submit, abort, ask, and what state it is in.

Lives on the event loop's thread. The engine's own thread speaks to it through `LoopListener`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fleetward_api.admin import MemoryState, ModelState
from fleetward_api.fault_words import sentence_of
from fleetward_engine.admin.policy import PolicyInForce
from fleetward_engine.engine import Engine
from fleetward_engine.errors import AdmissionRefused, DeadlineUnreachable, RequestRefused
from fleetward_engine.outputs import EngineStats, RequestOutput
from fleetward_engine.request import Request
from fleetward_engine.server.drain import Drain
from fleetward_engine.server.errors import ApiError, not_taken_in, server_fault, unavailable
from fleetward_engine.server.generation import Generation
from fleetward_engine.server.health import Condition, Phase
from fleetward_engine.server.latency_metrics import Timeline
from fleetward_engine.server.leaks import LeakWatch
from fleetward_engine.server.loop import EngineLoop
from fleetward_engine.server.metrics import EngineMetrics, Held
from fleetward_engine.server.sampling import refusal
from fleetward_engine.server.served_model import ServedModel, served_model

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Running:
    generation: Generation
    timeline: Timeline | None  # None: it is in no metric


class EngineService:
    """Requests in, outputs out, and the state behind the probes.

    ``ended`` is set when the engine can never serve (again); ``fault`` then says why.
    """

    def __init__(
        self,
        build: Callable[[], tuple[Engine, ModelState]],
        *,
        clock: Callable[[], float],
    ) -> None:
        self.clock = clock
        self.loop = EngineLoop(build, self, clock=clock)
        self.metrics = EngineMetrics(self.stats, self.held, self.memory)
        self.drain = Drain()
        self.policy: PolicyInForce | None = None
        self.model: ServedModel | None = None
        self.phase: Phase = "loading"
        self.fault = ""
        self.ended = asyncio.Event()
        self.connections: Callable[[], int] = lambda: 0
        self.when_loaded: Callable[[], None] = lambda: None
        self._running: dict[str, _Running] = {}
        self._open_responses = 0
        self._leaks = LeakWatch()

    @property
    def never_ran(self) -> bool:
        """Whether no engine is or was here: the model is being loaded still, or can't be.

        There is no request and no cache then. What is meant for the engine is posted to its loop:
        it is done before any request, or never, where none can come.
        """
        return self.phase in ("loading", "load_failed")

    @property
    def unfinished(self) -> int:
        """Requests whose answer is still being made."""
        return len(self._running)

    def stats(self) -> EngineStats | None:
        """The engine's last published numbers; None while loading."""
        return self.loop.progress.stats

    def memory(self) -> MemoryState | None:
        """What the memory is for; None while loading, and where nothing computes."""
        return None if self.model is None else self.model.state.memory

    def held(self) -> Held:
        """What the event loop's side holds for clients."""
        return Held(
            unfinished=self.unfinished,
            responses=self._open_responses,
            connections=self.connections(),
            tasks=len(asyncio.all_tasks()),
        )

    @contextlib.contextmanager
    def responding(self) -> Iterator[None]:
        """Count one open response for as long as it is being sent."""
        self._open_responses += 1
        try:
            yield
        finally:
            self._open_responses -= 1

    def condition(self) -> Condition:
        """What the probes decide on."""
        # A probe may be the first thing that runs after a pause.
        self.loop.heartbeat.beat(self.clock())
        return Condition(
            phase=self.phase,
            fault=self.fault,
            has_bundle=self.policy is not None,
            draining=self.drain.draining,
            progress_at=self.loop.progress.progress_at,
            resumed_at=self.loop.heartbeat.resumed_at,
        )

    def ready_parts(self) -> tuple[ServedModel, PolicyInForce]:
        """Model and policy to serve a request with.

        Raises:
            ApiError: 503 that says what is missing.
        """
        if self.phase in ("failed", "load_failed"):
            # Not why: that is for its pod's status, and none of a caller's business.
            raise unavailable("The engine failed; another will take over.", code="engine_failed")
        if self.model is None:
            raise unavailable("The model is being loaded.", code="model_loading")
        if self.policy is None:
            raise unavailable("No policy bundle is in force yet.", code="no_policy")
        if self.drain.refuses(self.clock()):
            raise unavailable("This engine is draining.", code="draining")
        return self.model, self.policy

    def submit(self, requests: Sequence[Request], *, measured: bool = True) -> Generation:
        """Queue the requests of one call; their outputs arrive in the generation.

        Those that are not `measured` are nobody's, and stand in no metric.
        """
        generation = Generation(*(request.request_id for request in requests))
        for request in requests:
            tenant = request.cache.owner.tenant
            timeline = Timeline(request.arrival, tenant) if measured else None
            self._running[request.request_id] = _Running(generation, timeline)
            self.loop.submit(request)
        return generation

    def abort(self, request_id: str) -> None:
        """Free what a request holds; nothing happens once it has ended."""
        running = self._running.pop(request_id, None)
        if running is not None:
            if running.timeline is not None:
                self.metrics.aborted()
            self.loop.abort(request_id)

    def fail_all(self, error: ApiError) -> None:
        """End every running request with an error its client sees."""
        for request_id, running in list(self._running.items()):
            running.generation.fail(error)
            self.abort(request_id)

    def on_loaded(self, engine: Engine, model: ModelState) -> None:
        """The model is there: requests can be taken as soon as a policy is in force."""
        self.model = served_model(engine, model)
        self.phase = "running"
        logger.info("model loaded: %s", model.model_digest)
        self.when_loaded()

    def on_load_failed(self, fault: BaseException) -> None:
        """The model can't be loaded: say so in every place that is looked at."""
        # No request has come yet, so its words are the model's and the device's alone.
        self._end("load_failed", describe(fault))

    def on_idle(self, stats: EngineStats) -> None:
        """Self-check: what is held for nobody is logged and counted, what is awaited is failed."""
        leaks = self._leaks.look(stats, self._running)
        for kind, count in leaks.grown.items():
            logger.error("leak: %d %s held while nothing runs", count, kind)
            self.metrics.leaked(kind, count)
        for request_id in leaks.lost:
            self._running.pop(request_id).generation.fail(
                server_fault("The engine lost this request.", code="engine_error")
            )

    def on_failed(self, fault: BaseException) -> None:
        """The engine raised: every client hears of it now."""
        self._end("failed", sentence_of(fault))
        self.fail_all(server_fault("The engine failed while serving.", code="engine_failed"))

    def on_outputs(self, outputs: list[RequestOutput], at: float) -> None:
        """Hand one step's outputs to their requests."""
        for output in outputs:
            running = self._running.get(output.request_id)
            if running is None:
                continue
            if running.timeline is not None:
                self.metrics.observe(running.timeline, output, at)
            running.generation.push(output)
            if output.finish_reason is not None:
                del self._running[output.request_id]

    def on_refused(self, request_id: str, fault: Exception) -> None:
        """The engine can't take this request."""
        running = self._running.pop(request_id, None)
        if running is None:
            return
        if isinstance(fault, RequestRefused):
            error = refusal(fault)
        elif isinstance(fault, (AdmissionRefused, DeadlineUnreachable)):
            error = not_taken_in(fault)
        else:
            logger.error("request %s could not be queued", request_id, exc_info=fault)
            error = server_fault("The engine could not queue this request.")
        if running.timeline is not None:
            self.metrics.refused(error.code or str(error.status))
        running.generation.fail(error)

    def _end(self, phase: Phase, fault: str) -> None:
        self.phase = phase
        self.fault = fault
        self.ended.set()


def describe(fault: BaseException) -> str:
    """A fault of loading in one line: its message, with the type where that says more."""
    words = " ".join(str(fault).split())
    if type(fault).__module__.startswith("fleetward"):
        return words[:1024]
    name = type(fault).__name__
    return f"{name}: {words}"[:1024] if words else name
