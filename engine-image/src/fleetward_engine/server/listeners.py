"""uvicorn servers on sockets of our own, stopped by us and not by signals."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from fleetward_engine.errors import ConfigInvalid
from fleetward_engine.server.protocol import EngineProtocol

BACKLOG = 2048
STOP_TIMEOUT_S = 2
PEER_LOST_S = (30, 10, 3)
"""TCP keepalive: idle seconds, seconds between probes, probes. A peer whose node died says nothing
more, and its connections would stay for ever."""


class Server(uvicorn.Server):
    """A uvicorn server that leaves the process's signals to the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture nothing: three servers share one process."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        ConfigInvalid: the address can't be had; the message says which.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as fault:
        raise ConfigInvalid(f"cannot listen on {host} port {port}: {fault.strerror}") from fault
    # Accepted sockets inherit it. asyncio sets it itself only where the socket's protocol number is
    # spelled out, which accepted sockets' is not; without it each answer waits 40 ms for an ack.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    for option, value in zip(options, PEER_LOST_S, strict=True):
        listener.setsockopt(socket.IPPROTO_TCP, option, value)
    return listener


def server(app: ASGIApp, *, tls: tuple[Path, Path] | None = None) -> Server:
    """A server for one app; ``tls`` is certificate and key, read now."""
    config = uvicorn.Config(
        app,
        http=EngineProtocol,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=STOP_TIMEOUT_S,
        ssl_certfile=tls[0] if tls else None,
        ssl_keyfile=tls[1] if tls else None,
    )
    config.load()
    return Server(config)


class Listeners:
    """The servers of this process, started and stopped together."""

    def __init__(self) -> None:
        self._servers: list[Server] = []
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, one: Server, at: socket.socket) -> int:
        """Serve on a socket; returns its port."""
        port: int = at.getsockname()[1]
        self._servers.append(one)
        self._tasks.append(asyncio.create_task(one.serve(sockets=[at])))
        return port

    async def stop(self) -> None:
        """Close all; connections get a moment to finish."""
        for one in self._servers:
            one.should_exit = True
        await asyncio.gather(*self._tasks)
