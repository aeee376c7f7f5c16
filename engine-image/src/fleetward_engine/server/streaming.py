"""Sending an answer, streamed or whole, while watching for a client that leaves.

Starlette does not cancel a handler when the client goes before the first byte, so both responses
wait for ``http.disconnect`` beside the engine, and abort the request when it comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fleetward_engine.outputs import RequestOutput
from fleetward_engine.server.choices import Choice, check_output
from fleetward_engine.server.errors import ApiError, server_fault
from fleetward_engine.server.generation import Generation
from fleetward_engine.server.responses import Shape, error_event

INLINE_TOKENS = 256
"""Log-probabilities of more tokens are written on a worker thread: a token takes up to 10 µs."""

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
    """An ASGI response that runs until every choice has ended or the client leaves."""

    def __init__(
        self,
        generation: Generation,
        shape: Shape,
        choices: Mapping[str, Choice],
        *,
        stream: bool,
        service: Responder,
        headers: Mapping[str, str],
    ) -> None:
        # Not Response.__init__: there is no body yet to render.
        self.background = None
        self.status_code = 200
        self._generation = generation
        self._shape = shape
        self._choices = choices
        self._stream = stream
        self._service = service
        self._told = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve until done; the engine's side is freed however this ends."""
        serve = self._serve_stream(send) if self._stream else self._serve_whole(scope, send)
        with self._service.responding():
            try:
                await _until_gone(serve, receive)
            finally:
                for request_id in self._generation.request_ids:
                    self._service.abort(request_id)

    async def _serve_whole(self, scope: Scope, send: Send) -> None:
        try:
            while outputs := await self._generation.next_outputs():
                for output in outputs:
                    self._choices[output.request_id].feed(output)
            choices = self._finished()
            tokens = sum(len(choice.entries) for choice in choices)
            content = await _run(lambda: orjson.dumps(self._shape.whole(choices)), tokens=tokens)
            response = Response(content, media_type="application/json", headers=self._told)
        except ApiError as error:
            response = error.response()
        await response(scope, _never, send)

    async def _serve_stream(self, send: Send) -> None:
        try:
            outputs = await self._generation.next_outputs()
            for output in outputs:
                check_output(output)
        except ApiError as error:
            await error.response()({"type": "http"}, _never, send)
            return
        headers = self._stream_headers()
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            tail = await self._send_chunks(outputs, send)
        except ApiError as error:
            tail = error_event(error.body())
        await send({"type": "http.response.body", "body": tail, "more_body": False})

    async def _send_chunks(self, outputs: list[RequestOutput], send: Send) -> bytes:
        """Send all but the end, which is returned."""
        pending = self._shape.opening(list(self._choices.values()))
        while outputs:
            pending += await _run(
                partial(self._grown, outputs), tokens=sum(len(o.prompt_logprobs) for o in outputs)
            )
            if pending:
                await send({"type": "http.response.body", "body": pending, "more_body": True})
                pending = b""
            outputs = await self._generation.next_outputs()
        return self._shape.ending(self._finished())

    def _grown(self, outputs: list[RequestOutput]) -> bytes:
        return b"".join(chunk for output in outputs for chunk in self._chunks(output))

    def _chunks(self, output: RequestOutput) -> Iterator[bytes]:
        choice = self._choices[output.request_id]
        delta = choice.feed(output)
        if delta:
            yield self._shape.growth(choice, delta)
        if choice.finish_reason is not None:
            yield self._shape.closing(choice)

    def _stream_headers(self) -> list[tuple[bytes, bytes]]:
        own = [(name.lower().encode(), value.encode()) for name, value in self._told.items()]
        return [*_STREAM_HEADERS, *own]

    def _finished(self) -> list[Choice]:
        choices = list(self._choices.values())
        if any(choice.finish_reason is None for choice in choices):
            raise server_fault("The engine ended this request without a result.")
        return choices


async def _run(make: Callable[[], bytes], *, tokens: int) -> bytes:
    """Make a piece of an answer; with log-probabilities of many tokens, beside the event loop."""
    return make() if tokens <= INLINE_TOKENS else await asyncio.to_thread(make)


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
