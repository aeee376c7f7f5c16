"""A reverse proxy in front of a real API server, that a test can make late, silent or wrong.

Plain HTTP on 127.0.0.1. Each user of it has a token of its own, for which the proxy speaks to the
API server as that user, so that its rights and its name in the audit log are the user's.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Self

import aiohttp
from aiohttp import web

from fleetward_kube.connection import Connection, load_connection
from tests.support.api_calls import (
    Answer,
    Broken,
    Call,
    Record,
    Trouble,
    caller_of,
    status_object,
)
from tests.support.watch_lines import whole_lines

__all__ = ["Answer", "ApiProxy", "Broken", "Call", "Record", "Trouble", "status_object"]

RACE_S = 0.3
"""Calls that cross with a 429 on the wire could not know of it."""

_HOP = frozenset({"host", "connection", "authorization", "transfer-encoding", "content-length"})
_JSON = "application/json"


Before = Callable[[Call], Awaitable[Answer | None]]
After = Callable[[Call, int], Awaitable[None]]


class ApiProxy:
    """The proxy of one test.

    Args:
        kubeconfig: of the API server; its user is who callers without a known token are.
        rng: draws which calls are troubled.

    Attributes:
        before: called before a call is forwarded; may wait, raise `Broken`, or answer itself.
        after: called when the server has answered and the caller does not know it yet.
        trouble: see `Trouble`; assign a fresh one to heal.
        calls: every call since the start.
        early: calls that came before a `Retry-After` of the proxy's for the same method and path.
    """

    def __init__(self, kubeconfig: Path, *, rng: random.Random | None = None) -> None:
        self.before: Before | None = None
        self.after: After | None = None
        self.trouble = Trouble()
        self.calls: list[Record] = []
        self.early: list[Call] = []
        self.port = 0
        self._kubeconfig = kubeconfig
        self._rng = rng or random.Random(0)  # noqa: S311 - which calls are troubled
        self._users: dict[str, tuple[Connection, aiohttp.ClientSession]] = {}
        self._server: web.Server | None = None
        self._listener: asyncio.Server | None = None
        self._watches: dict[int, asyncio.Future[bytes]] = {}
        self._silences = 0
        self._numbers = itertools.count()
        self._deaf_watches = 0
        self._silent = False
        self._asked: dict[tuple[str, str, str], tuple[float, float]] = {}

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def watching(self) -> int:
        """How many watches stand."""
        return len(self._watches)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen."""
        await self._add_user("", self._kubeconfig)
        self._server = web.Server(self._handle, access_log=None, handler_cancellation=True)
        await self.accept()

    async def stop(self) -> None:
        """End everything."""
        await self.refuse()
        if self._server is not None:
            await self._server.shutdown(0.1)
        for _, session in self._users.values():
            await session.close()

    async def write_kubeconfig(self, path: Path, user_kubeconfig: Path) -> Path:
        """A kubeconfig whose server is this proxy and whose user is that of `user_kubeconfig`."""
        token = secrets.token_hex(16)
        await self._add_user(f"Bearer {token}", user_kubeconfig)
        named = {"name": "proxy"}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{**named, "cluster": {"server": self.url}}],
            "users": [{**named, "user": {"token": token}}],
            "contexts": [{**named, "context": {"cluster": "proxy", "user": "proxy"}}],
            "current-context": "proxy",
        }
        await asyncio.to_thread(path.write_text, json.dumps(document))
        return path

    async def refuse(self) -> None:
        """Close the port and break off every connection."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for handler in self._server.connections if self._server else ():
            transport = handler.transport
            if isinstance(transport, asyncio.WriteTransport):
                transport.abort()

    async def accept(self) -> None:
        """Take connections (again, on the same port)."""
        if self._server is None or self._listener is not None:
            return
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._server, "127.0.0.1", self.port)
        self.port = self._listener.sockets[0].getsockname()[1]

    def silence(self) -> None:
        """Take connections and say nothing more; what stands now never speaks again."""
        self._silences += 1
        self._silent = True

    def deafen_watches(self) -> None:
        """Every watch that stands now never speaks again; nothing else changes."""
        self._deaf_watches += 1

    def speak(self) -> None:
        """Answer those who ask from now on."""
        self._silent = False

    def end_watches(self, status: int = 410, reason: str = "Expired") -> int:
        """End each standing watch with an error event in its stream; how many there were."""
        line = json.dumps({"type": "ERROR", "object": status_object(status, reason)}) + "\n"
        return self._end_each(line.encode())

    def close_watches(self) -> int:
        """End each standing watch in good order, as at its time's end; how many there were."""
        return self._end_each(b"")

    def _end_each(self, last: bytes) -> int:
        standing = [end for end in self._watches.values() if not end.done()]
        for end in standing:
            end.set_result(last)
        return len(standing)

    async def _add_user(self, authorization: str, kubeconfig: Path) -> None:
        connection = await load_connection({"KUBECONFIG": str(kubeconfig)})
        connector = aiohttp.TCPConnector(limit=0, ssl=connection.tls or True)
        session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None),
        )
        self._users[authorization] = (connection, session)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        record = self._note(request)
        mark = self._silences
        try:
            body = await request.read()
            await self._heard(mark)
            return await self._answer(request, record, body=body, mark=mark)
        except (Broken, aiohttp.ClientError):
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=502)
        finally:
            record.answered_at = record.answered_at or time.monotonic()

    def _note(self, request: web.BaseRequest) -> Record:
        query = dict(request.query)
        call = Call(
            index=next(self._numbers),
            method=request.method,
            path=request.path,
            query=query,
            agent=request.headers.get("User-Agent", ""),
            is_watch=query.get("watch") in {"1", "true"},
        )
        record = Record(call, time.monotonic())
        self.calls.append(record)
        told_at, until = self._asked.get(caller_of(call), (0.0, 0.0))
        if told_at + RACE_S < record.at < until:
            self.early.append(call)
        return record

    async def _answer(
        self, request: web.BaseRequest, record: Record, *, body: bytes, mark: int
    ) -> web.StreamResponse:
        call = record.call
        if self.trouble.latency_s is not None:
            await asyncio.sleep(self.trouble.latency_s(self._rng))
        answer = self.trouble.answer(call, self._rng)
        if answer is None and self.before is not None:
            answer = await self.before(call)
        if answer is None:
            return await self._forward(request, record, body=body, mark=mark)
        self._told(record, answer.status)
        if answer.status == 429 and "Retry-After" in answer.headers:
            asked_s = float(answer.headers["Retry-After"])
            self._asked[caller_of(call)] = (record.answered_at, record.answered_at + asked_s)
        return web.Response(
            status=answer.status,
            body=answer.body,
            headers={"Content-Type": _JSON, **answer.headers},
        )

    async def _forward(
        self, request: web.BaseRequest, record: Record, *, body: bytes, mark: int
    ) -> web.StreamResponse:
        call, authorization = record.call, request.headers.get("Authorization", "")
        connection, session = self._users.get(authorization) or self._users[""]
        headers = {name: v for name, v in request.headers.items() if name.lower() not in _HOP}
        own = await connection.authorization()
        if own:
            headers["Authorization"] = own
        async with session.request(
            call.method,
            connection.server + request.raw_path,
            data=body or None,
            headers=headers,
            allow_redirects=False,
        ) as upstream:
            content = b"" if call.is_watch else await upstream.read()
            if self.after is not None:
                await self.after(call, upstream.status)
            await self._heard(mark)
            self._told(record, upstream.status)
            passed = {n: v for n, v in upstream.headers.items() if n.lower() not in _HOP}
            if not call.is_watch or upstream.status != web.HTTPOk.status_code:
                content = content or await upstream.read()
                return web.Response(status=upstream.status, body=content, headers=passed)
            return await self._stream(request, record, upstream=upstream, headers=passed, mark=mark)

    async def _stream(
        self,
        request: web.BaseRequest,
        record: Record,
        *,
        upstream: aiohttp.ClientResponse,
        headers: Mapping[str, str],
        mark: int,
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        end: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._watches[record.call.index] = end
        deaf = self._deaf_watches
        try:
            async with contextlib.aclosing(whole_lines(upstream, until=end)) as lines:
                async for line in lines:
                    await self._heard(mark, deaf)
                    await response.write(line)
            await self._heard(mark, deaf)
            await response.write_eof()
        finally:
            del self._watches[record.call.index]
        return response

    async def _heard(self, mark: int, deaf: int | None = None) -> None:
        """Wait for ever where a silence has fallen since the call came."""
        fell = deaf is not None and deaf != self._deaf_watches
        if self._silent or mark != self._silences or fell:
            await asyncio.Event().wait()

    @staticmethod
    def _told(record: Record, status: int) -> None:
        record.status, record.answered_at = status, time.monotonic()
