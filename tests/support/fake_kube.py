"""An API server reduced to list and watch of one collection, whose faults a test can choose."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web

from fleetward_kube.connection import Connection

PATH = "/api/v1/namespaces/n/configmaps"


def config_map(name: str, *, version: int, uid: str = "", **data: str) -> dict[str, Any]:
    metadata = {"namespace": "n", "name": name, "uid": uid or f"uid-{name}"}
    return {"metadata": {**metadata, "resourceVersion": str(version)}, "data": data}


class FakeCollection:
    """`objects` is what a list answers; `send` puts lines on every open watch."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = 1
        self.lists = 0
        self.queries: list[dict[str, str]] = []
        self.watching = asyncio.Event()
        self.page_faults: list[web.Response] = []
        self.watch_refusal = 0
        self._streams: list[asyncio.Queue[bytes | None]] = []
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self) -> None:
        application = web.Application()
        application.router.add_get(PATH, self._get)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]

    async def stop(self) -> None:
        self.end_watches()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def connection(self) -> Connection:
        return Connection(f"http://127.0.0.1:{self.port}")

    def put(self, name: str, *, uid: str = "", tell: bool = True, **data: str) -> None:
        self.version += 1
        kind = "MODIFIED" if name in self.objects else "ADDED"
        self.objects[name] = config_map(name, version=self.version, uid=uid, **data)
        if tell:
            self.send({"type": kind, "object": self.objects[name]})

    def delete(self, name: str, *, tell: bool = True) -> None:
        self.version += 1
        item = self.objects.pop(name)
        if tell:
            self.send({"type": "DELETED", "object": item})

    def expire(self) -> None:
        status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
        self.send({"type": "ERROR", "object": status})

    def send(self, event: object) -> None:
        self.send_bytes(json.dumps(event).encode() + b"\n")

    def send_bytes(self, data: bytes) -> None:
        for stream in self._streams:
            stream.put_nowait(data)

    def end_watches(self) -> None:
        for stream in self._streams:
            stream.put_nowait(None)

    async def _get(self, request: web.Request) -> web.StreamResponse:
        self.queries.append(dict(request.query))
        if "watch" in request.query and self.watch_refusal:
            return web.json_response({"message": "no"}, status=self.watch_refusal)
        if "watch" in request.query:
            return await self._watch(request)
        if self.page_faults:
            return self.page_faults.pop(0)
        if "continue" not in request.query:
            self.lists += 1
        start = int(request.query.get("continue", "0"))
        end = start + int(request.query["limit"])
        names = sorted(self.objects)
        metadata = {"resourceVersion": str(self.version)}
        if end < len(names):
            metadata["continue"] = str(end)
        items = [self.objects[name] for name in names[start:end]]
        return web.json_response({"metadata": metadata, "items": items})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        stream: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._streams.append(stream)
        self.watching.set()
        try:
            while (data := await stream.get()) is not None:
                await response.write(data)
        finally:
            self._streams.remove(stream)
            self.watching.clear()
        return response
