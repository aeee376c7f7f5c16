"""The life of a serving process: start, serve, and the three ways it ends.

Exit codes: 0 after a drain, 70 when the engine failed while running, 78 when the model could not be
loaded. The last two leave the fault's words where the kubelet reads them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Callable

from fleetward_engine.server.assembly import Assembly
from fleetward_engine.server.errors import unavailable
from fleetward_engine.server.health import liveness
from fleetward_engine.server.listeners import Listeners, listen
from fleetward_engine.server.termination import write_termination
from fleetward_engine.settings import Ports, ServeSettings

logger = logging.getLogger(__name__)

EXIT_FAILED = 70
EXIT_NOT_LOADED = 78
TELL_S = {EXIT_FAILED: 2.0, EXIT_NOT_LOADED: 5.0}
"""How long a process that must end still answers probes and ``/state`` with its fault."""
POLL_S = 0.05
THREAD_STOP_S = 2.0
LAST_RESORT_S = 9.0


async def run(
    settings: ServeSettings,
    assembly: Assembly,
    *,
    last_resort: Callable[[int], None] | None = None,
) -> int:
    """Serve until told to stop or until the engine ends; returns the exit code.

    ``last_resort`` is called with that code as soon as the engine has ended: it must see to it that
    the process ends even if what follows gets stuck.
    """
    listeners = Listeners()
    stopping = asyncio.Event()
    _on_signals(assembly, stopping)
    _listen(listeners, assembly, settings.ports)
    settings.pid_file.write_text(str(os.getpid()), "ascii")
    assembly.service.loop.start()
    try:
        return await _until_end(settings, assembly, stopping, last_resort)
    finally:
        await listeners.stop()
        assembly.service.loop.stop(timeout_s=THREAD_STOP_S)
        settings.pid_file.unlink(missing_ok=True)


async def _until_end(
    settings: ServeSettings,
    assembly: Assembly,
    stopping: asyncio.Event,
    last_resort: Callable[[int], None] | None,
) -> int:
    ended = asyncio.create_task(assembly.service.ended.wait())
    stopped = asyncio.create_task(stopping.wait())
    await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not ended.done():
        ended.cancel()
        await _drain(assembly, cap_s=settings.drain_timeout_s)
        return 0
    service = assembly.service
    code = EXIT_NOT_LOADED if service.phase == "load_failed" else EXIT_FAILED
    if last_resort is not None:
        last_resort(code)
    write_termination(settings.termination_log, service.fault)
    await asyncio.sleep(TELL_S[code])
    return code


async def _drain(assembly: Assembly, *, cap_s: float) -> None:
    service = assembly.service
    start_drain(assembly)
    # Counted from the first word of it: preStop and SIGTERM together get no longer.
    while service.drain.elapsed(service.clock()) < cap_s and not service.ended.is_set():
        now = service.clock()
        done = service.drain.done(now, unfinished=service.unfinished)
        # Streams of an engine that hangs never end: the kubelet's stop comes for just that.
        if done or not liveness(service.condition(), now).ok:
            break
        await asyncio.sleep(POLL_S)
    cut = service.unfinished
    if assembly.member is not None:
        assembly.member.log.append("stopped", {"cutStreams": cut})
    if cut:
        logger.warning("%d requests were still running after %.0f s: cut", cut, cap_s)
    service.fail_all(unavailable("The engine is shutting down.", code="shutting_down"))


def make_last_resort() -> Callable[[int], None]:
    """A call that ends this process with an exit code in 9 s, whatever still runs by then.

    A thread in a stuck call keeps Python alive. The one that ends it exists from now on: when it is
    needed there may be no memory to start it.
    """
    called: queue.SimpleQueue[int] = queue.SimpleQueue()

    def wait() -> None:
        code = called.get()
        time.sleep(LAST_RESORT_S)
        os._exit(code)

    threading.Thread(target=wait, name="last-resort", daemon=True).start()
    return called.put


def start_drain(assembly: Assembly) -> None:
    """Turn readiness off; requests that run go on."""
    if assembly.member is not None:
        assembly.member.drain(assembly.service)
    else:
        assembly.service.drain.start(assembly.service.clock())


def _on_signals(assembly: Assembly, stopping: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    # What `fleetward-engine drain` sends: only a process of this container can.
    loop.add_signal_handler(signal.SIGUSR1, start_drain, assembly)


def _listen(listeners: Listeners, assembly: Assembly, ports: Ports) -> None:
    wanted = [
        ("public", assembly.public, ports.public),
        ("metrics", assembly.metrics, ports.metrics),
    ]
    if assembly.admin is not None:
        wanted.append(("admin", assembly.admin, ports.admin))
    sockets = [(name, one, listen(ports.host, port)) for name, one, port in wanted]
    for name, one, at in sockets:
        logger.info("%s server on port %d", name, listeners.start(one, at))
