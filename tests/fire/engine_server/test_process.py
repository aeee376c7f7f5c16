"""The real process: serve, drain, stop; and what it leaves behind when it can't go on."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from e2e.cluster.ports import free_port
from fleetward_api.admin import ModelState
from fleetward_engine.__main__ import EXIT_USAGE, main
from fleetward_engine.engine import Engine
from fleetward_engine.errors import ConfigInvalid, ModelUnavailable
from fleetward_engine.factory import build_engine
from fleetward_engine.server.assembly import World, assemble
from fleetward_engine.server.listeners import listen
from fleetward_engine.server.process import EXIT_FAILED, EXIT_NOT_LOADED, run
from tests.support.engine_server import engine_config, serve_settings


@asynccontextmanager
async def process(folder: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    profile = engine_config(folder, step_ms=5.0).simulation_profile
    command = [
        sys.executable, "-m", "fleetward_engine", "serve", "--model", "package://none",
        "--served-model-name", "demo", "--insecure-local", "--host", "127.0.0.1",
        "--port", str(port), "--metrics-port", "0", "--pid-file", str(folder / "pid"),
        "--termination-log", str(folder / "termination"), "--runner", "simulated",
        "--simulation-profile", str(profile),
    ]  # fmt: skip
    quiet = asyncio.subprocess.DEVNULL
    child = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet)
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def until_ready(http: httpx.AsyncClient) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                if (await http.get("/ready")).status_code == 200:
                    return
            except httpx.ConnectError:
                pass
            await asyncio.sleep(0.05)


async def test_a_stop_lets_streams_finish(tmp_path: Path) -> None:
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    async with (
        process(tmp_path, port) as child,
        httpx.AsyncClient(base_url=base, timeout=30) as http,
    ):
        await until_ready(http)
        body = {"model": "demo", "prompt": "x", "max_tokens": 100, "stream": True}
        async with http.stream("POST", "/v1/completions", json=body) as answer:
            child.send_signal(signal.SIGTERM)
            text = (await answer.aread()).decode()
        assert text.endswith("data: [DONE]\n\n")
        async with asyncio.timeout(20):
            assert await child.wait() == 0
    assert not (tmp_path / "pid").exists()


@pytest.mark.parametrize(("fault", "code"), [("load", EXIT_NOT_LOADED), ("step", EXIT_FAILED)])
async def test_a_fatal_fault_is_told_to_the_kubelet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, code: int
) -> None:
    monkeypatch.setattr("fleetward_engine.server.process.TELL_S", {code: 0.1})
    config = engine_config(tmp_path)
    settings = serve_settings(tmp_path, config, governed=False)
    world = World(clock=time.monotonic, wall=time.time, new_id=lambda: "id")

    def build() -> tuple[Engine, ModelState]:
        if fault == "load":
            raise ModelUnavailable("file:///nope is not there")
        engine, state = build_engine(config)
        monkeypatch.setattr(engine.governance, "expire", lambda _now: 1 / 0)
        return engine, state

    monkeypatch.setattr("fleetward_engine.server.loop.EXPIRE_EVERY_S", 0.0)
    async with asyncio.timeout(30):
        assert await run(settings, assemble(settings, build, world)) == code
    words = settings.termination_log.read_text()
    if fault == "load":
        assert words == "file:///nope is not there"
    else:
        # Its own words could quote a request; where it was raised cannot.
        assert words.startswith(f"ZeroDivisionError at {__name__}:")


@pytest.fixture
def own_sigterm() -> Iterator[None]:
    """A program's start takes SIGTERM over; here it is pytest's again afterwards."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("own_sigterm")
def test_a_wrong_setting_is_told_to_the_kubelet(tmp_path: Path) -> None:
    log = tmp_path / "termination"
    flags = ["--model", "m", "--insecure-local", "--block-size", "0", "--termination-log", str(log)]
    assert main(["serve", *flags]) == EXIT_USAGE
    assert "block_size must be at least 1" in log.read_text()


@pytest.mark.usefixtures("own_sigterm")
def test_draining_where_no_engine_runs_fails(tmp_path: Path) -> None:
    assert main(["drain", "--pid-file", str(tmp_path / "none")]) == 1


def test_accepted_connections_send_at_once() -> None:
    with (
        listen("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
    ):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_a_port_that_is_taken_is_named() -> None:
    with listen("127.0.0.1", 0) as held:
        port = held.getsockname()[1]
        with pytest.raises(ConfigInvalid, match=f"port {port}"):
            listen("127.0.0.1", port)
