"""A small client of the API server: JSON in and out, streams, typed errors, always a timeout."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

import aiohttp
import orjson

from fleetward_kube.connection import Connection, load_connection
from fleetward_kube.deferral import Deferrals
from fleetward_kube.errors import KubeError, error_from_status
from fleetward_kube.sockets import Sockets

MAX_TIMEOUT_S = 20.0
"""No call other than a watch may take longer."""

APPLY = "application/apply-patch+yaml"
"""Content type of server-side apply (JSON is YAML)."""

MERGE_PATCH = "application/merge-patch+json"

_CONNECT_S = 5.0
_UNSAID_WAIT_S = 1.0
_FIRST_REFUSAL = 300


class KubeClient:
    """An open session to one API server; use it as an async context manager.

    `KubeClient.from_environment()` finds the server when it is entered;
    `KubeClient(connection)` takes one that is already known.

    Args:
        connection: the server, where it is already known.
        patience_s: seconds for which a call that the API server put off (429, or a `Retry-After`)
            is sent again when its time has come. 0, for those who keep their own time: a
            controller must not be held up by one call.
    """

    def __init__(self, connection: Connection | None = None, *, patience_s: float = 0.0) -> None:
        self._known = connection
        self._patience_s = patience_s
        self._environ: Mapping[str, str] = {}
        self._connection: Connection | None = None
        self._session: aiohttp.ClientSession | None = None
        self._sockets = Sockets()
        self._deferrals = Deferrals(time.monotonic)

    @classmethod
    def from_environment(
        cls, environ: Mapping[str, str] | None = None, *, patience_s: float = 0.0
    ) -> Self:
        """A client of the server that `KUBECONFIG` names, else of the pod's own cluster.

        Entering it raises `KubeError` (`NotConfigured`) when there is neither.
        """
        client = cls(patience_s=patience_s)
        client._environ = os.environ if environ is None else environ
        return client

    async def __aenter__(self) -> Self:
        self._connection = self._known or await load_connection(self._environ)
        # No limit: each watch holds a connection for minutes, calls must never queue behind them.
        connector = aiohttp.TCPConnector(
            limit=0, ssl=self._connection.tls or True, socket_factory=self._sockets.make
        )
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar()
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
            await self._sockets.end()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
        timeout: float = MAX_TIMEOUT_S,  # noqa: ASYNC109 - the HTTP client's own timeout
    ) -> dict[str, Any]:
        """One call; the parsed JSON object of a 2xx answer.

        Args:
            method: HTTP method, upper case.
            path: absolute path on the server, such as `/api/v1/namespaces/a/configmaps/b`.
            query: URL parameters.
            body: sent as JSON; `bytes` are sent as they are.
            content_type: of the body; see `APPLY` and `MERGE_PATCH`.
            timeout: seconds for the whole call, at most `MAX_TIMEOUT_S`.

        Raises:
            KubeError: any other answer, or none; also, without asking, while a `Retry-After`
                of an earlier answer to this method and path has not passed.
        """
        data = body if isinstance(body, bytes) or body is None else orjson.dumps(body)
        until = time.monotonic() + self._patience_s
        while True:
            try:
                return await self._call(
                    method, path, query=query, data=data, content_type=content_type, timeout=timeout
                )
            except KubeError as error:
                wait = _put_off_for(error)
                if not wait or time.monotonic() + wait > until:
                    raise
            await asyncio.sleep(wait)

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None,
        data: bytes | None,
        content_type: str,
        timeout: float,  # noqa: ASYNC109 - the HTTP client's own timeout
    ) -> dict[str, Any]:
        limits = aiohttp.ClientTimeout(total=min(timeout, MAX_TIMEOUT_S), sock_connect=_CONNECT_S)
        headers = {} if data is None else {"Content-Type": content_type}
        async with self._answer(
            method, path, query=query, data=data, headers=headers, limits=limits
        ) as response:
            content = await response.read()
        return _parsed_object(content, status=response.status)

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], quiet_s: float
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """A GET whose body is read as it comes; no end in time, only in silence.

        Args:
            path: absolute path on the server.
            query: URL parameters.
            quiet_s: seconds without a byte after which the stream counts as dead.

        Raises:
            KubeError: a refusal, or (`Timeout`, `Unreachable`) a stream that broke off.
        """
        limits = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=quiet_s)
        async with self._answer(
            "GET", path, query=query, data=None, headers={}, limits=limits
        ) as response:
            yield response.content

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None,
        data: bytes | None,
        headers: dict[str, str],
        limits: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None or self._connection is None:
            raise RuntimeError("KubeClient is used outside its `async with` block")
        self._deferrals.check(method, path)
        try:
            authorization = await self._connection.authorization()
            if authorization:
                headers["Authorization"] = authorization
            async with self._session.request(
                method,
                self._connection.server + path,
                params=query,
                data=data,
                headers={"Accept": "application/json", **headers},
                timeout=limits,
                allow_redirects=False,
                server_hostname=self._connection.server_hostname,
            ) as response:
                if response.status >= _FIRST_REFUSAL:
                    text = await response.read()
                    asked = self._deferrals.note(method, path, response.headers.get("Retry-After"))
                    raise error_from_status(
                        _lenient_json(text), http_status=response.status, retry_after_s=asked
                    )
                yield response
        except TimeoutError as error:
            raise KubeError(
                0, "Timeout", f"{method} {path}: the API server did not answer in time"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise KubeError(0, "Unreachable", f"{method} {path}: {error}") from error


def _put_off_for(error: KubeError) -> float:
    """Seconds after which a call that was not carried out may come again; 0: it was refused."""
    if error.status == HTTPStatus.TOO_MANY_REQUESTS:
        return error.retry_after_s or _UNSAID_WAIT_S
    return error.retry_after_s


def _lenient_json(content: bytes) -> object:
    try:
        return orjson.loads(content)
    except ValueError:
        return content.decode("utf-8", "replace")


def _parsed_object(content: bytes, *, status: int) -> dict[str, Any]:
    try:
        value = orjson.loads(content)
    except ValueError as error:
        raise KubeError(
            status, "Malformed", f"the API server's body is not JSON: {error}"
        ) from None
    if not isinstance(value, dict):
        raise KubeError(status, "Malformed", "the API server's body is not a JSON object")
    return value
