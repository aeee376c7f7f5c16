"""A canary in every place of a request, looked for in whatever anybody but its sender reads."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

from fleetward_api.canonical import canonical_bytes
from fleetward_api.logs import FORMAT, WithoutContent
from fleetward_gateway.proxy import route
from tests.support.canaries import CANARY, CHAT, TEXT, Probe, chat, probes, text
from tests.support.engine_server import SERVICE_UID, RunningEngine, running_engine
from tests.support.eventually import eventually
from tests.support.gateway import KEY_A, KEY_B, GatewayUnderTest, gateway_under_test
from tests.support.purge_orders import order


@dataclass(slots=True)
class Sinks:
    """Everything that was written or can be asked for: name and text."""

    found: dict[str, str] = field(default_factory=dict)

    def leaks(self) -> list[str]:
        """Names of those that hold the canary, in whichever case."""
        return [name for name, text in self.found.items() if CANARY.lower() in text.lower()]


class Lines(logging.Handler):
    """Every log line of both programs and their libraries, as our programs print it."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(WithoutContent(FORMAT))
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def logged() -> Iterator[Lines]:
    """All that is logged, at the most talkative level."""
    lines, root = Lines(), logging.getLogger()
    before = root.level
    root.addHandler(lines)
    root.setLevel(logging.DEBUG)
    yield lines
    root.setLevel(before)
    root.removeHandler(lines)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[RunningEngine]:
    folder = tmp_path / "engine"
    folder.mkdir()
    async with running_engine(folder) as running:
        yield running


@pytest.fixture
async def gateway(tmp_path: Path, engine: RunningEngine) -> AsyncIterator[GatewayUnderTest]:
    folder = tmp_path / "gateway"
    folder.mkdir()
    async with gateway_under_test(folder, signing=engine.keys.gateway) as running:
        running.put_service(model="demo", tenants=("a", "b"), uid=SERVICE_UID)
        running.put_ports(engine.public_port)
        yield running


async def send(gateway: GatewayUnderTest, probe: Probe, *, url: str = "") -> int:
    """The status that the sender is answered with; the answer itself is the sender's."""
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY_A}"}
    async with gateway.session.request(
        probe.method,
        (url or gateway.url) + probe.path,
        # A stream, since the client warns of large bodies that are bytes.
        data=io.BytesIO(probe.body),
        headers={**headers, **probe.headers},
    ) as response:
        await response.read()
        return response.status


async def to_engine(gateway: GatewayUnderTest, engine: RunningEngine, probe: Probe) -> int:
    """The same past the gateway, which refuses much before an engine sees it."""
    headers = {**engine.identity(), **probe.headers}
    direct = Probe(probe.about, probe.path, probe.body, headers, probe.method)
    return await send(gateway, direct, url=engine.url)


async def raw(port: int, data: bytes) -> None:
    """Bytes that are no request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    writer.write_eof()
    await reader.read()
    writer.close()
    await writer.wait_closed()


async def look(
    gateway: GatewayUnderTest, engine: RunningEngine, logged: Lines, folder: Path
) -> Sinks:
    """All that others than the sender can read of the two processes."""
    sinks = Sinks({f"log line {n}": line for n, line in enumerate(logged.lines)})
    session, scrape = gateway.session, gateway.gateway.scrape.port
    pages = [f"http://127.0.0.1:{port}/metrics" for port in (scrape, engine.metrics_port)]
    pages += [engine.url + path for path in ("/health", "/ready", "/load")]
    pages += [gateway.url + path for path in ("/healthz", "/readyz")]
    for page in pages:
        async with session.get(page) as response:
            sinks.found[page] = await response.text()
    for call in ("/state", "/evidence?since=0"):
        sinks.found[f"engine {call}"] = (await engine.admin("GET", call)).text
    member = gateway.gateway.member
    sinks.found["gateway state"] = canonical_bytes(member.state()).decode()
    sinks.found["gateway evidence"] = canonical_bytes(member.evidence(0)).decode()
    for path in ("/v1/models", TEXT, CHAT):
        sinks.found[f"another tenant's {path}"] = await as_other(gateway, path)
    sinks.found |= files_in(folder)
    return sinks


def files_in(folder: Path) -> dict[str, str]:
    """Every file that the two processes may have written."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {str(file): file.read_bytes().decode("latin-1") for file in files}


async def as_other(gateway: GatewayUnderTest, path: str) -> str:
    """What tenant b is answered, headers and body."""
    bodies = {TEXT: text(), CHAT: chat(), "/v1/models": None}
    async with gateway.session.request(
        "POST" if bodies[path] else "GET",
        gateway.url + path,
        data=bodies[path],
        headers={"authorization": f"Bearer {KEY_B}", "content-type": "application/json"},
    ) as response:
        return str(response.headers) + await response.text()


async def test_what_a_client_sends_is_found_nowhere_else(
    gateway: GatewayUnderTest, engine: RunningEngine, logged: Lines, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    statuses = [await send(gateway, probe) for probe in probes()]
    direct = [await to_engine(gateway, engine, probe) for probe in probes()]
    for port in (gateway.gateway.public.port, engine.public_port):
        await raw(port, f"{CANARY}\r\n\r\n".encode())
        await raw(port, f"GET /{CANARY} HTTP/1.1\r\nhost: {CANARY}/\r\n\r\n".encode())
        head = f"POST {TEXT} HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n{CANARY}"
        await raw(port, head.encode())
    # Enough of each kind: served, refused by the gateway or the engine, unauthenticated, too large.
    for seen in (statuses, direct):
        assert {200, 400, 401, 404, 405, 413, 415} <= set(seen)
        assert seen.count(200) > 25
        assert 500 not in seen
    async with gateway.post(json_of_long(), path=TEXT) as response:
        await response.content.read(10)
    await eventually(lambda: engine.stats.running == 0)
    purged = await engine.admin("POST", "/purge", order("a", 1))
    sinks = await look(gateway, engine, logged, tmp_path)
    printed = capfd.readouterr()
    sinks.found |= {"receipt": purged.text, "stdout": printed.out, "stderr": printed.err}
    assert purged.status_code == 200
    assert sinks.leaks() == []


def json_of_long() -> dict[str, Any]:
    """A stream whose reader leaves."""
    prompt = {"prompt": CANARY, "stop": CANARY, "user": CANARY}
    return {"model": "demo", "max_tokens": 1500, "stream": True, **prompt}


def quoting(*given: Any, **_options: Any) -> NoReturn:
    """A fault of a library, whose words are what it was given."""
    raise KeyError(f"{given} {CANARY}")


async def async_quoting(*given: Any, **options: Any) -> NoReturn:
    """The same, awaited."""
    quoting(*given, **options)


@pytest.mark.parametrize("where", ["gateway", "encoding", "adding", "telling", "stepping"])
async def test_a_fault_that_quotes_a_request_tells_it_to_nobody(
    gateway: GatewayUnderTest, engine: RunningEngine, logged: Lines, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, where: str,
) -> None:  # fmt: skip
    service = engine.assembly.service
    assert service.model is not None
    core: Any = await service.loop.call(lambda engine: engine)
    owners: dict[str, tuple[Any, str, Any]] = {
        "gateway": (route, "read_asked", quoting),
        "encoding": (service.model.encoder, "completion", async_quoting),
        "adding": (core, "add_request", quoting),
        "telling": (service.metrics, "observe", quoting),
        "stepping": (core._runner, "run", quoting),
    }
    owner, name, fault = owners[where]
    target = owner if where != "encoding" else type(owner)
    monkeypatch.setattr(target, name, fault)
    status = await send(gateway, Probe(where, TEXT, text(prompt=CANARY)))
    assert status == 500
    if where == "gateway":
        monkeypatch.undo()
    sinks = await look(gateway, engine, logged, tmp_path)
    assert sinks.leaks() == []
    # It is told, all the same: its kind and the place it came from.
    told = "\n".join(logged.lines)
    assert "KeyError" in told
    assert "quoting" in told
    if where in {"telling", "stepping"}:
        assert "KeyError at" in sinks.found["engine /state"]
