"""The public app (port 8000) and the metrics app (port 9090)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from fleetward_api.identity import IDENTITY_HEADER
from fleetward_engine.server.errors import ApiError, on_api_error, on_http_error, on_unexpected
from fleetward_engine.server.health import Verdict, liveness, readiness
from fleetward_engine.server.inference import Inference
from fleetward_engine.server.metrics import CONTENT_TYPE
from fleetward_engine.server.request_id import RequestIds
from fleetward_engine.server.service import EngineService
from fleetward_engine.server.tokenize import Tokenization


@dataclass(frozen=True, slots=True)
class Probes:
    """The routes of kubelet and gateway: alive, ready, how loaded, which models."""

    service: EngineService
    inference: Inference
    started_at: int

    async def health(self, _request: Request) -> Response:
        """200 while the engine makes progress."""
        return _verdict(liveness(self.service.condition(), self.service.clock()))

    async def ready(self, _request: Request) -> Response:
        """200 when requests may be sent here."""
        return _verdict(readiness(self.service.condition()))

    async def load(self, _request: Request) -> Response:
        """The numbers a router picks by."""
        stats = self.service.stats()
        verdict = readiness(self.service.condition())
        return JSONResponse(
            {
                "ready": verdict.ok,
                "draining": self.service.drain.draining,
                "unfinished": self.service.unfinished,
                "running": stats.running if stats else 0,
                "waiting": stats.waiting if stats else 0,
                "kv_blocks_used": stats.kv_blocks_used if stats else 0,
                "kv_blocks_total": stats.kv_blocks_total if stats else 0,
            }
        )

    async def models(self, request: Request) -> Response:
        """The served names, first the name, then its aliases."""
        self.inference.authenticator.authenticate(request.headers.get(IDENTITY_HEADER))
        names = self.inference.served_model_names
        return JSONResponse({"object": "list", "data": [self._model(name) for name in names]})

    def _model(self, name: str) -> dict[str, object]:
        return {
            "id": name,
            "object": "model",
            "created": self.started_at,
            "owned_by": "fleetward",
        }


def public_app(probes: Probes, *, new_id: Callable[[], str]) -> ASGIApp:
    """Everything on port 8000; every answer carries ``x-request-id``."""
    inference = probes.inference
    tokenization = Tokenization(inference)
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", inference.chat_completions, methods=["POST"]),
            Route("/v1/completions", inference.completions, methods=["POST"]),
            Route("/v1/responses", inference.responses, methods=["POST"]),
            Route("/tokenize", tokenization.tokenize, methods=["POST"]),
            Route("/detokenize", tokenization.detokenize, methods=["POST"]),
            Route("/v1/models", probes.models, methods=["GET"]),
            Route("/health", probes.health, methods=["GET"]),
            Route("/ready", probes.ready, methods=["GET"]),
            Route("/load", probes.load, methods=["GET"]),
        ],
        exception_handlers={
            ApiError: on_api_error,
            HTTPException: on_http_error,
            Exception: on_unexpected,
        },
    )
    app.router.redirect_slashes = False
    return RequestIds(app, new_id=new_id)


def metrics_app(service: EngineService) -> ASGIApp:
    """``/metrics`` alone."""

    async def metrics(_request: Request) -> Response:
        return Response(service.metrics.render(), headers={"content-type": CONTENT_TYPE})

    return Starlette(routes=[Route("/metrics", metrics, methods=["GET"])])


def _verdict(verdict: Verdict) -> Response:
    status = 200 if verdict.ok else 503
    return JSONResponse({"ok": verdict.ok, "message": verdict.words}, status_code=status)
