"""Sending an answer, streamed or whole, while watching for a client that leaves.

Starlette does not cancel a handler when the client goes before the first byte, so both responses
wait for ``http.disconnect`` beside the engine, and abort the request when it comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import AbstractContextManager
from typing import Protocol

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fleetward_api.openai import CODE_PURGED
from fleetward_engine.outputs import RequestOutput
from fleetward_engine.server.errors import ApiError, server_fault, unavailable
from fleetward_engine.server.generation import Generation
from fleetward_engine.server.responses import DONE, Answer, Json, error_event, event

_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Responder(Protocol):
    """What a response needs of the service."""

    def abort(self, request_id: str) -> None:
        """Free what a request holds."""

    def responding(self) -> AbstractContextManager[None]:
        """Count one open response."""


class GenerationResponse(Response):
    """An ASGI response that runs until the generation ends or the client leaves."""

    def __init__(
        self,
        generation: Generation,
        answer: Answer,
        *,
        stream: bool,
        service: Responder,
    ) -> None:
        # Not Response.__init__: there is no body yet to render.
        self.background = None
        self.status_code = 200
        self._generation = generation
        self._answer = answer
        self._stream = stream
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve until done; the engine's side is freed however this ends."""
        serve = self._serve_stream(send) if self._stream else self._serve_whole(scope, send)
        with self._service.responding():
            try:
                await _until_gone(serve, receive)
            finally:
                self._service.abort(self._generation.request_id)

    async def _serve_whole(self, scope: Scope, send: Send) -> None:
        pieces: list[str] = []
        try:
            last = await self._collect(pieces)
            content = orjson.dumps(self._answer.whole("".join(pieces), last))
            response = Response(content, media_type="application/json")
        except ApiError as error:
            response = error.response()
        await response(scope, _never, send)

    async def _collect(self, pieces: list[str]) -> RequestOutput:
        last: RequestOutput | None = None
        while outputs := await self._generation.next_outputs():
            pieces.extend(output.text_delta for output in outputs)
            last = outputs[-1]
        return _finished(last)

    async def _serve_stream(self, send: Send) -> None:
        try:
            outputs = await self._generation.next_outputs()
            for output in outputs:
                _check(output)
        except ApiError as error:
            await error.response()({"type": "http"}, _never, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
        try:
            await self._send_chunks(outputs, send)
            tail = DONE
        except ApiError as error:
            tail = error_event(error.body())
        await send({"type": "http.response.body", "body": tail, "more_body": False})

    async def _send_chunks(self, outputs: list[RequestOutput], send: Send) -> None:
        opening = self._answer.opening()
        pending = event(opening) if opening is not None else b""
        last = outputs[-1]
        while outputs:
            pending += b"".join(
                event(self._answer.delta(output.text_delta))
                for output in outputs
                if output.text_delta
            )
            last = outputs[-1]
            if pending:
                await send({"type": "http.response.body", "body": pending, "more_body": True})
                pending = b""
            outputs = await self._generation.next_outputs()
        tail = self._tail(_finished(last))
        body = b"".join(event(chunk) for chunk in tail)
        await send({"type": "http.response.body", "body": body, "more_body": True})

    def _tail(self, last: RequestOutput) -> list[Json]:
        chunks = [self._answer.closing(last.finish_reason or "stop")]
        if self._answer.include_usage:
            chunks.append(self._answer.usage_chunk(last))
        return chunks


def _finished(last: RequestOutput | None) -> RequestOutput:
    if last is None or last.finish_reason is None:
        raise server_fault("The engine ended this request without a result.")
    _check(last)
    return last


def _check(output: RequestOutput) -> None:
    """An aborted or failed request is an error for its client, never a fake ``stop``."""
    if output.finish_reason == "error":
        raise server_fault(output.error or "The engine failed this request.", code="engine_error")
    if output.finish_reason == "abort":
        message = "The request was aborted: the cache of its scope is being deleted."
        raise unavailable(message, code=CODE_PURGED)


async def _until_gone(serve: Awaitable[None], receive: Receive) -> None:
    serving = asyncio.ensure_future(serve)
    watching = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({serving, watching}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
    finally:
        for task in (serving, watching):
            task.cancel()
        await asyncio.gather(serving, watching, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _never() -> dict[str, str]:
    raise RuntimeError("nothing is left to receive")
