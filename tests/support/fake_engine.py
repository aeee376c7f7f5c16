"""An engine reduced to its HTTP side, whose behaviour a test chooses per request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

Behaviour = Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]


async def answers(request: web.Request, body: bytes) -> web.StreamResponse:
    return web.json_response({"ok": True, "size": len(body)})


class FakeEngine:
    """`requests` holds headers and body of all that arrived; `left` counts vanished clients."""

    def __init__(self, behaviour: Behaviour = answers, *, host: str = "127.0.0.1") -> None:
        self.behaviour = behaviour
        self.host = host
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.arrived = asyncio.Event()
        self.left = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self) -> None:
        application = web.Application(client_max_size=1 << 30)
        application.router.add_post("/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host, self.port)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def endpoint(self, uid: str) -> dict[str, Any]:
        return {
            "addresses": [self.host],
            "conditions": {"ready": True},
            "targetRef": {"kind": "Pod", "uid": uid},
        }

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.requests.append(({k.lower(): v for k, v in request.headers.items()}, body))
        self.arrived.set()
        try:
            return await self.behaviour(request, body)
        except asyncio.CancelledError:
            self.left.set()
            raise


async def hangs(request: web.Request, body: bytes) -> web.StreamResponse:
    await asyncio.sleep(60)
    return web.Response()


def events(*pieces: bytes, then: str = "end", pause_s: float = 0.0) -> Behaviour:
    """Stream pieces, then `end` in order, `hang`, or `die` in the middle."""

    async def behave(request: web.Request, body: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(pause_s)
        if then == "hang":
            await asyncio.sleep(60)
        if then == "die" and request.transport is not None:
            request.transport.abort()
        return response

    return behave


def replies(status: int, body: object, **headers: str) -> Behaviour:
    """Answer with a fixed JSON body."""

    async def behave(request: web.Request, _body: bytes) -> web.StreamResponse:
        return web.json_response(body, status=status, headers=headers)

    return behave
