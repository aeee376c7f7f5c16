"""The public application: the hot routes, the model list, health."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fleetward_api.openai import CODE_INVALID_VALUE, CODE_UNKNOWN_PARAMETER
from fleetward_gateway.admission.facts import ServiceFacts
from fleetward_gateway.problem import Problem, model_not_found
from fleetward_gateway.proxy.asgi import JSON_TYPE, Answer, Receive, RequestHead, Scope, Send
from fleetward_gateway.proxy.gate import Gate
from fleetward_gateway.proxy.route import CompletionsRoute, internal_error

_MODELS = "/v1/models"
_NOT_FOUND = 404
_SEND_S = 60.0


class ModelsRoute:
    """`GET /v1/models` and `GET /v1/models/NAME`: only what the caller may use."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Serve one request (ASGI)."""
        head = RequestHead(scope)
        answer = Answer(send, request_id=head.request_id, stall_s=_SEND_S)
        try:
            content = self._content(head)
        except Problem as problem:
            await answer.problem(problem)
            return
        await answer.whole(200, [JSON_TYPE], orjson.dumps(content))

    def _content(self, head: RequestHead) -> dict[str, object]:
        models = self._gate.models_of(self._gate.authenticate(head).tenant)
        name = head.path.removeprefix(_MODELS).removeprefix("/")
        if not name:
            data = [_entry(model, models[model]) for model in sorted(models)]
            return {"object": "list", "data": data}
        if name not in models:
            raise model_not_found(name)
        return _entry(name, models[name])


def build_public_app(
    completions: CompletionsRoute, gate: Gate, *, not_ready: Callable[[], list[str]]
) -> Starlette:
    """The application on the public port.

    Args:
        completions: serves every route that an engine answers.
        gate: authenticates the model list.
        not_ready: what still keeps requests away; empty means ready.
    """

    async def healthz(request: Request) -> Response:
        return JSONResponse({"status": "ok"}, headers=_request_id(request))

    async def readyz(request: Request) -> Response:
        missing = not_ready()
        if not missing:
            return JSONResponse({"status": "ok", "missing": []}, headers=_request_id(request))
        return JSONResponse(
            {"status": "waiting", "missing": missing},
            status_code=503,
            headers={**_request_id(request), "retry-after": "1"},
        )

    models = ModelsRoute(gate)
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", completions, methods=["POST"]),
            Route("/v1/completions", completions, methods=["POST"]),
            Route("/v1/responses", completions, methods=["POST"]),
            Route("/tokenize", completions, methods=["POST"]),
            Route("/detokenize", completions, methods=["POST"]),
            Route(_MODELS, models, methods=["GET"]),
            Route(_MODELS + "/{name:path}", models, methods=["GET"]),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
        ],
        exception_handlers={HTTPException: _in_openai_shape, Exception: _failed},
    )
    # A redirect would lose the body of a POST, and clients take it for success.
    app.router.redirect_slashes = False
    return app


async def _in_openai_shape(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    method, path = request.method, request.url.path[:256]
    if error.status_code == _NOT_FOUND:
        problem = Problem(404, CODE_UNKNOWN_PARAMETER, f"There is no route {method} {path}.")
    else:
        problem = Problem(
            error.status_code, CODE_INVALID_VALUE, f"{path} does not take {method} requests."
        )
    return _refusal(request, problem, dict(error.headers or {}))


async def _failed(request: Request, _error: Exception) -> Response:
    # The server logs the exception itself.
    return _refusal(request, internal_error(), {})


def _refusal(request: Request, problem: Problem, headers: dict[str, str]) -> Response:
    return Response(
        problem.encoded(),
        status_code=problem.status,
        media_type="application/json",
        headers={**headers, **_request_id(request)},
    )


def _request_id(request: Request) -> dict[str, str]:
    return {"x-request-id": RequestHead(request.scope).request_id.decode()}


def _entry(name: str, service: ServiceFacts) -> dict[str, object]:
    created = datetime.fromisoformat(service.created) if service.created else None
    return {
        "id": name,
        "object": "model",
        "created": int(created.timestamp()) if created else 0,
        "owned_by": "fleetward",
    }
