"""Signed calls to one member's admin port, over TLS whose certificate was pinned at admission."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from fleetward_api.admin import (
    ADMIN_HEADER,
    WIRE_VERSION_HEADER,
    WIRE_VERSIONS,
    AdminErrorBody,
    AdmissionReply,
    sign_admin_call,
)
from fleetward_api.canonical import canonical_bytes
from fleetward_api.keys import SigningKey
from fleetward_operator.edges.metrics import Metrics
from fleetward_operator.errors import MemberError, NotLeading

MAX_ANSWER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a member answers, and which pod must be behind it."""

    host: str
    port: int
    pod_uid: str
    pod: str

    @property
    def url(self) -> str:
        """Base URL; an IPv6 address goes in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}:{self.port}"


class MemberRefused(MemberError):
    """The member answered with an error of its own."""

    def __init__(self, message: str, *, status: int, code: str) -> None:
        super().__init__(message, reason="MemberRefused")
        self.status = status
        self.code = code


class _SeenCertificate(aiohttp.Fingerprint):
    """Takes any certificate and remembers it; only for admission, which proves it afterwards."""

    def __init__(self) -> None:
        super().__init__(bytes(32))
        self.der = b""

    def check(self, transport: Any) -> None:
        """Called by aiohttp on each new connection, before anything is sent."""
        ssl_object: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        self.der = (ssl_object.getpeercert(binary_form=True) if ssl_object else None) or b""


class MemberClient:
    """Calls members; use it as an async context manager.

    Args:
        key: the operator's signing key.
        wall: wall-clock epoch seconds.
        request_id: a fresh id for each call.
        may_call: whether the lease is ours right now; asked before every signed call.
        timeout_s: of a call that names none.
    """

    def __init__(
        self,
        *,
        key: SigningKey,
        wall: Callable[[], float],
        request_id: Callable[[], str],
        metrics: Metrics,
        may_call: Callable[[], bool],
        timeout_s: float,
    ) -> None:
        self._key = key
        self._wall = wall
        self._request_id = request_id
        self._metrics = metrics
        self._may_call = may_call
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Start the session; must run inside the event loop."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        """End the session."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def admission(self, address: Address, nonce: str) -> tuple[AdmissionReply, bytes]:
        """A member's unsigned reply, and the certificate of the very connection that carried it.

        Raises:
            MemberError: no usable answer.
        """
        seen = _SeenCertificate()
        # A connection of its own: a pooled one would have been checked by somebody else.
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True)
        ) as session:
            data = await self._exchange(
                session,
                "GET",
                f"{address.url}/admission?nonce={nonce}",
                address=address,
                tls=seen,
                headers={},
                body=b"",
                timeout_s=self._timeout_s,
            )
        return _parsed(AdmissionReply, data, address), seen.der

    async def call(
        self,
        method: str,
        path: str,
        *,
        address: Address,
        fingerprint: str,
        body: object = None,
        timeout_s: float | None = None,
    ) -> bytes:
        """One signed call over the pinned certificate; the answer's bytes.

        Raises:
            MemberRefused: an error answer, with its code.
            MemberError: no answer, or not the pinned certificate.
            NotLeading: the lease is not ours; nothing was sent.
        """
        if self._session is None:
            raise RuntimeError("MemberClient is used before open()")
        if not self._may_call():
            raise NotLeading(f"{method} {path} was not sent to {address.pod}: the lease is lost")
        data = b"" if body is None else canonical_bytes(body)
        header = sign_admin_call(
            method=method,
            path=path,
            body=data,
            pod_uid=address.pod_uid,
            key=self._key,
            now=self._wall(),
            request_id=self._request_id(),
        )
        headers = {
            ADMIN_HEADER: header,
            WIRE_VERSION_HEADER: str(max(WIRE_VERSIONS)),
            "Content-Type": "application/json",
        }
        return await self._exchange(
            self._session,
            method,
            address.url + path,
            address=address,
            tls=aiohttp.Fingerprint(bytes.fromhex(fingerprint.removeprefix("sha256:"))),
            headers=headers,
            body=data,
            timeout_s=timeout_s or self._timeout_s,
        )

    async def _exchange(
        self,
        session: aiohttp.ClientSession,
        method: str,
        url: str,
        *,
        address: Address,
        tls: aiohttp.Fingerprint,
        headers: dict[str, str],
        body: bytes,
        timeout_s: float,
    ) -> bytes:
        name = url.removeprefix(address.url).partition("?")[0].strip("/")
        limits = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(3.0, timeout_s))
        try:
            async with session.request(
                method, url, data=body or None, headers=headers, ssl=tls, timeout=limits
            ) as response:
                data = await _bounded(response.content)
                status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._metrics.member_calls.labels(call=name, result="unreachable").inc()
            words = str(error) or type(error).__name__
            raise MemberError(f"{address.pod} did not answer {method} /{name}: {words}") from error
        if status != 200:  # noqa: PLR2004 - OK
            self._metrics.member_calls.labels(call=name, result="refused").inc()
            raise _refusal(address, f"{method} /{name}", status=status, data=data)
        self._metrics.member_calls.labels(call=name, result="ok").inc()
        return data


async def _bounded(content: aiohttp.StreamReader) -> bytes:
    """The whole answer; one read gives only what has arrived by then."""
    data = bytearray()
    async for piece in content.iter_any():
        data += piece
        if len(data) > MAX_ANSWER_BYTES:
            raise aiohttp.ClientPayloadError(f"its answer is above {MAX_ANSWER_BYTES} bytes")
    return bytes(data)


def _refusal(address: Address, call: str, *, status: int, data: bytes) -> MemberRefused:
    try:
        detail = AdminErrorBody.model_validate_json(data).error
        code, words = detail.code, detail.message
    except ValueError:
        code, words = "unknown", data[:200].decode("utf-8", "replace")
    message = f"{address.pod} refused {call} with {status} {code}: {words}"
    return MemberRefused(message, status=status, code=code)


def _parsed(model: type[AdmissionReply], data: bytes, address: Address) -> AdmissionReply:
    try:
        return model.model_validate_json(data)
    except ValueError as error:
        raise MemberError(f"{address.pod} answered no {model.__name__}: {error}") from error
