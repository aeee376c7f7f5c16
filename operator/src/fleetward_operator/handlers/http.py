"""`/healthz`, `/readyz` for the kubelet, `/metrics` for scrapers."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from fleetward_operator.edges.metrics import Metrics

Probe = Callable[[], str]
"""The empty string when all is well, else a sentence."""


def health_app(*, alive: Probe, ready: Probe) -> web.Application:
    """Probes: 200 `ok`, or 503 with the reason."""

    async def healthz(_request: web.Request) -> web.Response:
        return _answer(alive())

    async def readyz(_request: web.Request) -> web.Response:
        return _answer(ready())

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz)])
    return app


def metrics_app(metrics: Metrics, *, before: Callable[[], None]) -> web.Application:
    """The text exposition of our registry; `before` refreshes the gauges."""

    async def expose(_request: web.Request) -> web.Response:
        before()
        body = generate_latest(metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    app = web.Application()
    app.add_routes([web.get("/metrics", expose)])
    return app


async def serve(app: web.Application, port: int) -> web.AppRunner:
    """Start listening; the caller cleans the runner up."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", port, reuse_address=True).start()
    return runner


def _answer(fault: str) -> web.Response:
    return web.Response(text=fault or "ok", status=503 if fault else 200)
