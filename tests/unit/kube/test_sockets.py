"""A session that ends leaves no socket open, however its calls were broken off."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import socket
import ssl
import threading
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from e2e.cluster.pki import Subject, issue, new_authority
from fleetward_kube import KubeClient
from fleetward_kube.connection import Connection
from fleetward_kube.watch import watch_events

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


class SilentServer:
    """Shakes hands over TLS, answers one request's head, and never says goodbye."""

    def __init__(self, folder: Path) -> None:
        now = datetime.now(UTC)
        authority = new_authority("authority", now=now)
        pair = issue(authority, Subject("server", hosts=("127.0.0.1",)), now=now)
        (folder / "server.pem").write_bytes(pair.certificate + pair.key)
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(folder / "server.pem")
        self.trust = ssl.create_default_context(cadata=authority.certificate.decode())
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._listening.getsockname()[1]}"
        self._accepted: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        for each in list(self._accepted):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in [self._listening, *self._accepted]:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listening.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._answer, args=(plain,))
            self._threads.append(thread)
            thread.start()

    def _answer(self, plain: socket.socket) -> None:
        self._accepted.append(plain)
        with contextlib.suppress(OSError):
            wrapped = self._tls.wrap_socket(plain, server_side=True)
            self._accepted.append(wrapped)
            wrapped.recv(65536)
            wrapped.sendall(HEAD)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SilentServer]:
    opened = SilentServer(tmp_path)
    yield opened
    opened.close()


async def broken_off_after(server: SilentServer, delay_s: float, *, awaited: bool) -> None:
    async def watch() -> None:
        async for _ in watch_events(client, "/x", query={}, resource_version="1"):
            pass

    async with KubeClient(Connection(server.url, tls=server.trust)) as client:
        task = asyncio.create_task(watch())
        await asyncio.sleep(delay_s)
        task.cancel()
        if awaited:
            await asyncio.wait([task])


@pytest.mark.parametrize("awaited", [True, False])
def test_no_socket_outlives_its_session(server: SilentServer, awaited: bool) -> None:
    moments = random.Random(11)  # noqa: S311 - moments, not secrets
    delays = [0.05, 0.05, *(moments.random() * 0.006 for _ in range(60))]
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for delay in delays:
            asyncio.run(broken_off_after(server, delay, awaited=awaited))
        gc.collect()
    left = [str(each.message) for each in caught if "transport" in str(each.message)]
    assert left == []
