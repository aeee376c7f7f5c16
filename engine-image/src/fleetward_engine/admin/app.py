"""The admin app (port 8001, TLS): every call but ``/admission`` is signed by the operator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from fleetward_api.admin import (
    ADMIN_HEADER,
    WIRE_VERSION_HEADER,
    AdminErrorBody,
    PurgeOrder,
    check_wire_version,
    verify_admin_call,
)
from fleetward_api.bundle import BundlePush
from fleetward_api.canonical import WireModel, canonical_bytes, first_error
from fleetward_api.errors import AdminError
from fleetward_api.isolation_probe import ISOLATION_PROBE_PATH, ProbeOrder
from fleetward_api.replay import ReplayGuard
from fleetward_engine.admin.isolation import ProbeDesk
from fleetward_engine.admin.member import Member
from fleetward_engine.admin.policy_desk import PolicyDesk
from fleetward_engine.admin.purge import PurgeDesk
from fleetward_engine.server.body import read_body
from fleetward_engine.server.errors import ApiError
from fleetward_engine.server.loop import EngineStopped
from fleetward_engine.server.request_id import RequestIds
from fleetward_engine.server.service import EngineService

Model = TypeVar("Model", bound=WireModel)
Handler = Callable[[Request, bytes], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class AdminApi:
    """The calls of the admin API, each on what it needs."""

    member: Member
    service: EngineService
    policies: PolicyDesk
    purges: PurgeDesk
    probes: ProbeDesk

    async def admission(self, request: Request) -> Response:
        """Unsigned: the caller proves itself by opening the seal."""
        return _json(canonical_bytes(self.member.admission(request.query_params.get("nonce", ""))))

    async def state(self, _request: Request, _body: bytes) -> bytes:
        """What is in force here."""
        return canonical_bytes(self.member.state(self.service))

    async def policy(self, _request: Request, body: bytes) -> bytes:
        """Take a bundle."""
        return canonical_bytes(await self.policies.put(_parse(BundlePush, body)))

    async def purge(self, _request: Request, body: bytes) -> bytes:
        """Carry out an order, or give out its receipt again."""
        return await self.purges.purge(_parse(PurgeOrder, body))

    async def isolation_probe(self, _request: Request, body: bytes) -> bytes:
        """Try our own isolation."""
        return canonical_bytes(await self.probes.probe(_parse(ProbeOrder, body)))

    async def evidence(self, request: Request, _body: bytes) -> bytes:
        """The log after record ``since``."""
        since = request.query_params.get("since", "0")
        if not (since.isascii() and since.isdecimal() and len(since) <= 18):  # noqa: PLR2004
            raise AdminError(400, "invalid_since", "since must be a record number, 0 or more")
        return canonical_bytes(self.member.page(int(since)))

    async def drain(self, _request: Request, _body: bytes) -> bytes:
        """Turn readiness off."""
        return canonical_bytes(self.member.drain(self.service))


class SignedCalls:
    """Lets a call through once the operator's signature on it holds. ``wall``: epoch seconds."""

    def __init__(self, member: Member, *, wall: Callable[[], float]) -> None:
        self._member = member
        self._wall = wall
        self._seen = ReplayGuard(0.0)

    def route(self, path: str, handler: Handler, *, method: str) -> Route:
        """A route whose handler sees only verified calls."""

        async def verified(request: Request) -> Response:
            check_wire_version(request.headers.get(WIRE_VERSION_HEADER))
            body = await read_body(request)
            self._verify(request, body)
            return _json(await handler(request, body))

        return Route(path, verified, methods=[method])

    def _verify(self, request: Request, body: bytes) -> None:
        query = request.url.query
        verify_admin_call(
            request.headers.get(ADMIN_HEADER),
            method=request.method,
            path=f"{request.url.path}?{query}" if query else request.url.path,
            body=body,
            pod_uid=self._member.pod_uid,
            key=self._member.trusted().operator,
            now=self._wall(),
            guard=self._seen,
        )


def admin_app(api: AdminApi, calls: SignedCalls, *, new_id: Callable[[], str]) -> ASGIApp:
    """Everything on port 8001."""
    app = Starlette(
        routes=[
            Route("/admission", api.admission, methods=["GET"]),
            calls.route("/state", api.state, method="GET"),
            calls.route("/policy", api.policy, method="PUT"),
            calls.route("/purge", api.purge, method="POST"),
            calls.route(ISOLATION_PROBE_PATH, api.isolation_probe, method="POST"),
            calls.route("/evidence", api.evidence, method="GET"),
            calls.route("/drain", api.drain, method="POST"),
        ],
        exception_handlers={
            AdminError: _on_error,
            ApiError: _on_error,
            EngineStopped: _on_error,
            HTTPException: _on_error,
            Exception: _on_error,
        },
    )
    app.router.redirect_slashes = False
    return RequestIds(app, new_id=new_id)


def as_admin_error(error: Exception) -> AdminError:
    """Whatever went wrong, as the answer to send."""
    if isinstance(error, AdminError):
        return error
    if isinstance(error, ApiError):
        return AdminError(error.status, error.code or "invalid_request", error.message)
    if isinstance(error, EngineStopped):
        return AdminError(503, "engine_stopped", str(error))
    if isinstance(error, HTTPException):
        code = "method_not_allowed" if error.status_code == 405 else "unknown_call"  # noqa: PLR2004
        return AdminError(error.status_code, code, str(error.detail))
    return AdminError(500, "internal", "the engine failed to handle this call")


async def _on_error(_request: Request, error: Exception) -> Response:
    fault = as_admin_error(error)
    return _json(canonical_bytes(AdminErrorBody.of(fault)), status=fault.status)


def _parse(model: type[Model], body: bytes) -> Model:
    try:
        return model.model_validate_json(body)
    except ValidationError as fault:
        message = f"not a {model.__name__}: {first_error(fault)}"
        raise AdminError(400, "invalid_body", message) from fault


def _json(body: bytes, *, status: int = 200) -> Response:
    return Response(body, status_code=status, media_type="application/json")
