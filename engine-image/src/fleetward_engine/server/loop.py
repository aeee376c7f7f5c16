"""The engine's thread: schedule, run, update. Everything else reaches it by queue.

The event loop puts commands in; the thread runs them between steps, so a command sees the engine at
rest and delays decoding by no more than its own length. Outputs come back once per step.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from fleetward_api.admin import ModelState
from fleetward_engine.engine import Engine
from fleetward_engine.outputs import EngineStats, RequestOutput
from fleetward_engine.request import Request
from fleetward_engine.server.health import BEAT_S, Heartbeat

logger = logging.getLogger(__name__)

IDLE_TICK_S = 0.25
EXPIRE_EVERY_S = 0.5
"""In an idle engine, and up to a tick later: KV is gone well within a second of its time."""
PUBLISH_EVERY_S = 0.05
IDLE_REPORT_EVERY_S = 5.0
RESERVE_BYTES = 8 << 20

Result = TypeVar("Result")
Command = Callable[[Engine], None]


class EngineStopped(Exception):
    """The engine takes no more commands: it failed or was stopped."""


class LoopListener(Protocol):
    """Who hears from the engine, always on the event loop's thread."""

    def on_loaded(self, engine: Engine, model: ModelState) -> None:
        """The model is loaded; commands run from now on."""

    def on_load_failed(self, fault: BaseException) -> None:
        """The model cannot be loaded; the thread has ended."""

    def on_outputs(self, outputs: list[RequestOutput], at: float) -> None:
        """One step's outputs; ``at`` is the monotonic time the step ended, seconds."""

    def on_refused(self, request_id: str, fault: Exception) -> None:
        """The engine cannot take this request."""

    def on_idle(self, stats: EngineStats) -> None:
        """Nothing runs, and what ran before has been told; heard now and then while that is so."""

    def on_failed(self, fault: BaseException) -> None:
        """The engine raised, or what it said could not be heard; nothing more will come."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What the outside may know of the thread without asking it."""

    stats: EngineStats | None
    progress_at: float  # monotonic seconds: last time the thread was idle or a step had ended


class EngineLoop:
    """Owns the engine in one thread, from loading the model to the last step.

    ``step_seconds`` is how long the last step took, ``heartbeat`` that of the event loop.
    """

    def __init__(
        self,
        build: Callable[[], tuple[Engine, ModelState]],
        listener: LoopListener,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._build = build
        self._listener = listener
        self._clock = clock
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._main, name="engine", daemon=True)
        self._event_loop: asyncio.AbstractEventLoop | None = None
        # Given back when the engine fails: telling its clients takes memory, and there may be none.
        self._reserve: bytearray | None = bytearray(RESERVE_BYTES)
        self._stopping = False
        self._over = False
        self._last_expire = clock()
        self._published_at = clock()
        self._idle_report_at = clock()
        self.heartbeat = Heartbeat(clock())
        self.progress = Progress(stats=None, progress_at=clock())
        self.step_seconds = 0.0

    def start(self) -> None:
        """Start loading in the background; to be called on the event loop's thread."""
        self._event_loop = asyncio.get_running_loop()
        self._thread.start()
        self._beat(self._event_loop)

    def stop(self, *, timeout_s: float) -> bool:
        """End the thread after the current step; False when it did not end in time."""
        self._stopping = True
        self._commands.put(lambda _engine: None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def submit(self, request: Request) -> None:
        """Hand a request in; its outputs, or its refusal, reach the listener."""

        def add(engine: Engine) -> None:
            try:
                engine.add_request(request)
            except Exception as fault:  # noqa: BLE001 - one bad request must not end the engine
                self._post(self._listener.on_refused, request.request_id, fault)

        self._commands.put(add)

    def abort(self, request_id: str) -> None:
        """Free everything the request holds; unknown ids are ignored."""
        self._commands.put(lambda engine: _ignore(engine.abort_request(request_id)))

    def post(self, command: Command) -> None:
        """Run ``command`` between two steps, or first thing after loading; nobody waits for it."""
        self._commands.put(command)

    async def call(self, ask: Callable[[Engine], Result]) -> Result:
        """Run ``ask`` between two steps and return what it returned.

        Raises:
            EngineStopped: the thread ended before it could answer.
        """
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        def command(engine: Engine) -> None:
            try:
                result = ask(engine)
            except Exception as fault:  # noqa: BLE001 - the asker decides what it means
                self._post(_set_exception, future, fault)
            else:
                self._post(_set_result, future, result)

        if self._over:
            raise EngineStopped("the engine has stopped")
        self._commands.put(command)
        return await self._until_answered(future)

    async def _until_answered(self, future: asyncio.Future[Result]) -> Result:
        # A thread that died with the command in its queue never answers: look now and then.
        while True:
            done, _ = await asyncio.wait({future}, timeout=IDLE_TICK_S)
            if done:
                return future.result()
            if not self._thread.is_alive() and not future.done():
                future.cancel()
                raise EngineStopped("the engine stopped before it could answer")

    def _main(self) -> None:
        try:
            engine, model = self._build()
        except BaseException as fault:
            self._over = True
            self._tell(self._listener.on_load_failed, fault)
            # People need the sentence; the trail behind it only helps who debugs us.
            logger.warning("cannot load the model: %s", fault, exc_info=True)
            return
        self.progress = Progress(stats=engine.stats(), progress_at=self._clock())
        self._post(self._listener.on_loaded, engine, model)
        try:
            while not self._stopping:
                self._turn(engine)
        # Whatever it is: some libraries panic past `Exception`, and a thread that ended in silence
        # would leave a server that takes requests and answers none.
        except BaseException as fault:
            self._over = True
            self._tell(self._listener.on_failed, fault)
            logger.exception("the engine failed")
        finally:
            self._over = True

    def _tell(self, tell: Callable[[BaseException], None], fault: BaseException) -> None:
        """Say it first: logging may need memory that a fault for want of it still holds."""
        self._reserve = None
        traceback.clear_frames(fault.__traceback__)
        self._post(tell, fault)

    def _turn(self, engine: Engine) -> None:
        self._run_commands(engine)
        now = self._clock()
        if now - self._last_expire >= EXPIRE_EVERY_S:
            engine.governance.expire(now)
            self._last_expire = now
        outputs: list[RequestOutput] = []
        if engine.has_work:
            began = self._clock()
            outputs = engine.step()
            self.step_seconds = self._clock() - began
        at = self._clock()
        # Published first: whoever has seen an answer finds it in the numbers.
        self._publish(engine)
        if outputs:
            self._post(self._listener.on_outputs, outputs, at)
        elif not engine.has_work and at - self._idle_report_at >= IDLE_REPORT_EVERY_S:
            self._idle_report_at = at
            self._post(self._listener.on_idle, engine.stats())

    def _run_commands(self, engine: Engine) -> None:
        """Run what is queued now; what those commands lead to waits for the next turn.

        So work that is cut into several calls, one after another, lets a step in between.
        """
        try:
            first = self._commands.get(block=not engine.has_work, timeout=IDLE_TICK_S)
        except queue.Empty:
            return
        commands = [first, *(self._commands.get_nowait() for _ in range(self._commands.qsize()))]
        for command in commands:
            command(engine)

    def _publish(self, engine: Engine) -> None:
        """Let the outside see the stats; a step that scheduled nothing is no progress."""
        now = self._clock()
        idle = not engine.has_work
        if not idle and now - self._published_at < PUBLISH_EVERY_S:
            return
        self._published_at = now
        before, stats = self.progress, engine.stats()
        moved = idle or before.stats is None or stats.steps > before.stats.steps
        progress_at = now if moved else before.progress_at
        self.progress = Progress(stats=stats, progress_at=progress_at)

    def _post(self, callback: Callable[..., None], *arguments: object) -> None:
        if self._event_loop is None or self._event_loop.is_closed():
            return
        try:
            self._event_loop.call_soon_threadsafe(self._deliver, callback, *arguments)
        except RuntimeError:
            # Closed between the question and the call: nobody is left to hear it.
            logger.debug("the event loop closed before an answer could be delivered")

    def _deliver(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            callback(*arguments)
        except Exception as fault:
            # An answer that is lost here would leave its client waiting for ever.
            self._stopping = True
            self._listener.on_failed(fault)
            logger.exception("what the engine said could not be handled")

    def _beat(self, event_loop: asyncio.AbstractEventLoop) -> None:
        self.heartbeat.beat(self._clock())
        if not self._stopping:
            event_loop.call_later(BEAT_S, self._beat, event_loop)


def _ignore(_value: object) -> None:
    return None


def _set_result(future: asyncio.Future[Result], result: Result) -> None:
    if not future.done():
        future.set_result(result)


def _set_exception(future: asyncio.Future[Result], fault: Exception) -> None:
    if not future.done():
        future.set_exception(fault)
