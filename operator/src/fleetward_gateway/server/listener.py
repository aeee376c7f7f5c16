"""A uvicorn server that obeys its caller instead of signals."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from fleetward_gateway.server.protocol import GatewayProtocol, bounded_protocol
from fleetward_gateway.server.small_reads import in_small_reads

KEEPALIVE_S = 75
"""Longer than clients keep idle connections, so that they never send on one we are closing."""

_GRACE_S = 2
_LAST: Final = (b"connection", b"close")


class Listener(uvicorn.Server):
    """One application on one port; `serve()` runs until `should_exit` is set.

    Args:
        app: ASGI application.
        host: address to bind.
        port: 0 picks a free one, see `port`.
        max_body: bytes of a request's body that any route may read.
        write_stall_s: seconds for which a client may take nothing of what is sent to it.
        tls: certificate and key, read now, or None for plain HTTP.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str,
        port: int,
        max_body: int,
        write_stall_s: float,
        tls: tuple[Path, Path] | None = None,
    ) -> None:
        certificate, key = (str(path) for path in tls) if tls else (None, None)
        super().__init__(
            uvicorn.Config(
                app,
                http=in_small_reads(
                    bounded_protocol(max_body=max_body, write_stall_s=write_stall_s)
                ),
                ws="none",
                lifespan="off",
                access_log=False,
                server_header=False,
                # Who a client says it is in X-Forwarded-For is of no interest here.
                proxy_headers=False,
                log_config=None,
                timeout_graceful_shutdown=_GRACE_S,
                timeout_keep_alive=KEEPALIVE_S,
                ssl_certfile=certificate,
                ssl_keyfile=key,
            )
        )
        # Now: the files of a certificate and its key are there only for as long as this takes.
        self.config.load()
        self._socket = _bound(host, port)

    @property
    def port(self) -> int:
        """The port that is bound."""
        return int(self._socket.getsockname()[1])

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until told to stop."""
        await super().serve(sockets=sockets or [self._socket])

    def part(self) -> None:
        """From now on an answer is its connection's last: clients open their next one elsewhere.

        Otherwise a kept connection would bring requests until the process ends, and the one that
        is on its way just then would be lost.
        """
        self.config.encoded_headers.append(_LAST)
        # In place: requests that wait for their answer hold this very list.
        self.server_state.default_headers.append(_LAST)

    def close_resting(self) -> None:
        """Close the connections that have had an answer and carry no further request."""
        for connection in list(self.server_state.connections):
            if isinstance(connection, GatewayProtocol) and connection.resting:
                connection.transport.close()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Signals are the program's business: it drains before it stops its listeners."""
        yield


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named: asyncio turns Nagle's algorithm off only for such sockets, and
    # with it on, an answer's body waits 40 ms for the client's delayed acknowledgement.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((host, port))
    listening.listen(2048)
    return listening
