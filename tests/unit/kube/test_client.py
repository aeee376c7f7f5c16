"""The client's answers, refusals and time limits, against a local HTTP server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from fleetward_kube import KubeClient, KubeError
from fleetward_kube.client import APPLY
from fleetward_kube.connection import Connection, load_connection


async def _handle(request: web.Request) -> web.StreamResponse:
    match request.path:
        case "/echo":
            return web.json_response(
                {
                    "method": request.method,
                    "query": dict(request.query),
                    "type": request.content_type,
                    "authorization": request.headers.get("Authorization"),
                    "body": (await request.read()).decode(),
                }
            )
        case "/conflict":
            body = {"kind": "Status", "code": 409, "reason": "Conflict", "message": "field owned"}
            return web.json_response(body, status=409)
        case "/text":
            return web.Response(status=503, text="upstream is down")
        case "/slow":
            await asyncio.sleep(30)
        case "/list":
            return web.json_response([])
        case "/moved":
            return web.Response(status=307, headers={"Location": "/echo"})
        case _:
            pass
    return web.Response(text="not json")


@pytest.fixture
async def server() -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", _handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]
    await runner.cleanup()


async def test_sends_method_query_body_and_identity(server: str) -> None:
    async def authorization() -> str | None:
        return "Bearer t"

    async with KubeClient(Connection(server, authorization=authorization)) as client:
        answer = await client.request(
            "PATCH", "/echo", query={"a": "b"}, body={"x": 1}, content_type=APPLY
        )
    assert answer == {
        "method": "PATCH",
        "query": {"a": "b"},
        "type": APPLY,
        "authorization": "Bearer t",
        "body": '{"x":1}',
    }


@pytest.mark.parametrize(
    ("path", "status", "reason", "retryable"),
    [
        ("/conflict", 409, "Conflict", False),
        ("/text", 503, "Unknown", True),
        ("/list", 200, "Malformed", False),
        ("/other", 200, "Malformed", False),
        ("/moved", 307, "Unknown", False),
    ],
)
async def test_refusals_are_typed(
    server: str, *, path: str, status: int, reason: str, retryable: bool
) -> None:
    async with KubeClient(Connection(server)) as client:
        with pytest.raises(KubeError) as caught:
            await client.request("GET", path)
    error = caught.value
    assert (error.status, error.reason, error.retryable) == (status, reason, retryable)
    assert error.conflict == (status == 409)


async def test_silence_and_absence_are_errors_with_no_status(server: str) -> None:
    async with KubeClient(Connection(server)) as client:
        with pytest.raises(KubeError) as slow:
            await client.request("GET", "/slow", timeout=0.05)
    async with KubeClient(Connection("http://127.0.0.1:1")) as client:
        with pytest.raises(KubeError) as absent:
            await client.request("GET", "/echo")
    assert (slow.value.status, slow.value.reason) == (0, "Timeout")
    assert (absent.value.status, absent.value.reason) == (0, "Unreachable")
    assert slow.value.retryable
    assert absent.value.retryable


async def test_use_outside_its_block_is_refused() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await KubeClient(Connection("http://127.0.0.1:1")).request("GET", "/")


async def test_kubeconfig_is_read(tmp_path: Path, server: str) -> None:
    file = tmp_path / "config"
    file.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                "clusters": [{"name": "k", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {"token": "secret-token"}}],
            }
        )
    )
    async with KubeClient.from_environment({"KUBECONFIG": str(file)}) as client:
        answer = await client.request("GET", "/echo")
    assert answer["authorization"] == "Bearer secret-token"


@pytest.mark.parametrize("environ", [{}, {"KUBECONFIG": "/nowhere/config"}])
async def test_no_configuration_says_what_to_do(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(KubeError, match="set KUBECONFIG"):
        await load_connection(environ)


async def test_a_patient_client_sends_again_what_was_put_off_and_nothing_else() -> None:
    calls: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        calls.append(request.path)
        if request.path == "/conflict":
            return web.json_response({}, status=409)
        if request.path == "/busy" or len(calls) == 1:
            return web.json_response({}, status=429, headers={"Retry-After": "1"})
        return web.json_response({"method": request.method})

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server = Connection(f"http://127.0.0.1:{runner.addresses[0][1]}")
    async with KubeClient(server, patience_s=1.5) as client:
        assert await client.request("POST", "/late") == {"method": "POST"}
        with pytest.raises(KubeError, match="409"):
            await client.request("POST", "/conflict")
        with pytest.raises(KubeError) as gave_up:
            await client.request("GET", "/busy")
    async with KubeClient(server) as hasty:
        with pytest.raises(KubeError):
            await hasty.request("GET", "/busy")
    await runner.cleanup()
    assert gave_up.value.status == 429
    assert calls == ["/late", "/late", "/conflict", "/busy", "/busy", "/busy"]
