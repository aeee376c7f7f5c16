"""The admin application: signed calls of the operator, over TLS."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fleetward_api.admin import (
    ADMIN_HEADER,
    ADMIN_WINDOW_S,
    WIRE_VERSION_HEADER,
    AdminErrorBody,
    PurgeOrder,
    check_wire_version,
    verify_admin_call,
)
from fleetward_api.bundle import GatewayPush
from fleetward_api.canonical import canonical_bytes, first_error
from fleetward_api.errors import AdminError, AdmissionError
from fleetward_api.member import admission_reply
from fleetward_api.replay import ReplayGuard
from fleetward_gateway.cluster.view import ClusterView
from fleetward_gateway.member.member import Member
from fleetward_gateway.problem import Problem
from fleetward_gateway.proxy.asgi import ClientGone
from fleetward_gateway.proxy.body import BodyBudget, HeldBody, receive_body

MAX_BODY: Final = 4 << 20
MAX_HELD: Final = 16 << 20
"""Bytes of bodies that callers who are not authenticated yet can have us hold, all together."""

BODY_S: Final = 30.0
_CODES: Final = {408: "too_slow", 413: "too_large", 503: "busy"}
_Body = TypeVar("_Body", bound=BaseModel)
_Call = Callable[[Request, bytes], bytes]

logger = logging.getLogger(__name__)


class AdminApi:
    """Authenticates the operator and hands its calls to the member."""

    def __init__(
        self,
        member: Member,
        view: ClusterView,
        *,
        token_file: Path,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._member = member
        self._view = view
        self._token_file = token_file
        self._wall_clock = wall_clock
        self._guard = ReplayGuard(ADMIN_WINDOW_S)
        self._budget = BodyBudget(MAX_HELD)

    def build_app(self) -> Starlette:
        """The application on the admin port."""
        return Starlette(
            routes=[
                Route("/admission", self._admission, methods=["GET"]),
                Route("/state", self._signed(self._state), methods=["GET"]),
                Route("/policy", self._signed(self._policy), methods=["PUT"]),
                Route("/purge", self._signed(self._purge), methods=["POST"]),
                Route("/evidence", self._signed(self._evidence), methods=["GET"]),
                Route("/drain", self._signed(self._drain), methods=["POST"]),
            ],
            exception_handlers={HTTPException: _unknown_call},
        )

    async def _admission(self, request: Request) -> Response:
        trust = self._view.trust
        if trust is None:
            return _refusal(AdminError(503, "not_ready", "fleetward-trust has not been read yet"))
        try:
            reply = admission_reply(
                self._member.keys,
                kind="gateway",
                pod_uid=self._member.pod_uid,
                token=self._token_file.read_text().strip(),
                nonce=request.query_params.get("nonce", ""),
                sealing=trust.sealing,
            )
        except OSError as error:
            logger.warning("the pod's token cannot be read: %s", error)
            return _refusal(AdminError(503, "no_token", "the pod's token cannot be read"))
        except AdmissionError as error:
            return _refusal(AdminError(400, "admission", error.message))
        return _json(canonical_bytes(reply))

    def _signed(self, call: _Call) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            held = HeldBody(self._budget)
            try:
                _check_head(request)
                body = await _received(request, held)
                self._authenticate(request, body)
                return _json(call(request, body))
            except AdminError as error:
                return _refusal(error)
            finally:
                held.release()

        return handle

    def _authenticate(self, request: Request, body: bytes) -> None:
        trust = self._view.trust
        if trust is None:
            raise AdminError(503, "not_ready", "fleetward-trust has not been read yet")
        # From the request's target: the URL of the framework is made of the Host header too.
        path = request.scope["path"]
        query = request.scope["query_string"].decode("latin-1")
        verify_admin_call(
            request.headers.get(ADMIN_HEADER),
            method=request.method,
            path=path + (f"?{query}" if query else ""),
            body=body,
            pod_uid=self._member.pod_uid,
            key=trust.operator,
            now=self._wall_clock(),
            guard=self._guard,
        )

    def _state(self, _request: Request, _body: bytes) -> bytes:
        return canonical_bytes(self._member.state())

    def _policy(self, _request: Request, body: bytes) -> bytes:
        return canonical_bytes(self._member.put_policy(_read(GatewayPush, body).bundle))

    def _purge(self, _request: Request, body: bytes) -> bytes:
        return self._member.purge(_read(PurgeOrder, body))

    def _evidence(self, request: Request, _body: bytes) -> bytes:
        since = request.query_params.get("since", "0")
        if not (since.isascii() and since.isdecimal()):
            raise AdminError(400, "invalid_since", "'since' must be a record's number")
        return canonical_bytes(self._member.evidence(int(since)))

    def _drain(self, _request: Request, _body: bytes) -> bytes:
        return canonical_bytes(self._member.drain())


def _read(model: type[_Body], body: bytes) -> _Body:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise AdminError(400, "invalid_body", first_error(error)) from None


def _check_head(request: Request) -> None:
    """Refuse what cannot be a signed call before any of its body is read."""
    check_wire_version(request.headers.get(WIRE_VERSION_HEADER))
    if not request.headers.get(ADMIN_HEADER):
        raise AdminError(401, "missing", f"the call carries no {ADMIN_HEADER} header")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise AdminError(415, "encoded_body", "send the body uncompressed")


async def _received(request: Request, held: HeldBody) -> bytes:
    try:
        await receive_body(request.receive, held, limit=MAX_BODY, within_s=BODY_S)
    except Problem as problem:
        raise AdminError(problem.status, _CODES[problem.status], problem.message) from None
    except ClientGone:
        raise AdminError(400, "incomplete", "the body did not come to its end") from None
    return held.join()


async def _unknown_call(_request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return _refusal(AdminError(status, "unknown_call", "there is no such admin call"))


def _refusal(error: AdminError) -> Response:
    return _json(canonical_bytes(AdminErrorBody.of(error)), status=error.status)


def _json(content: bytes, *, status: int = 200) -> Response:
    return Response(content, status_code=status, media_type="application/json")
