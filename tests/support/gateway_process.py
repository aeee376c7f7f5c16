"""The gateway in a process of its own, so that its memory and its event loop can be measured.

Its view of the cluster is filled by hand. `python -m tests.support.gateway_process BOUNDS PORT …`
prints its ports as JSON and serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import uvloop

from tests.support.gateway import gateway_under_test


@dataclass(frozen=True, slots=True)
class GatewayProcess:
    """Where it listens, and its pid."""

    pid: int
    public: int
    admin: int
    scrape: int

    @property
    def url(self) -> str:
        """Of the public port."""
        return f"http://127.0.0.1:{self.public}"

    def resident_mib(self) -> float:
        """Resident memory now; the mark of `peak_mib` is put back to it."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        return self._status("VmRSS")

    def peak_mib(self) -> float:
        """The largest resident memory since `resident_mib` was asked for."""
        return self._status("VmHWM")

    def read_bytes(self) -> int:
        """Bytes that it has read from files and sockets since its start."""
        fields = Path(f"/proc/{self.pid}/io").read_text().split()
        return int(fields[fields.index("rchar:") + 1])

    async def metric(self, name: str) -> float:
        """The sum of a metric's series."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self.scrape}/metrics") as response,
        ):
            lines = (await response.text()).splitlines()
        found = [line for line in lines if line.partition("{")[0].partition(" ")[0] == name]
        return sum(float(line.rpartition(" ")[2]) for line in found)

    def _status(self, name: str) -> float:
        fields = Path(f"/proc/{self.pid}/status").read_text().split()
        return int(fields[fields.index(f"{name}:") + 1]) / 1024


@asynccontextmanager
async def gateway_process(*engine_ports: int, **bounds: float) -> AsyncIterator[GatewayProcess]:
    """Run one in front of engines on 127.0.0.1; `bounds` as in the gateway's settings."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.gateway_process", json.dumps(bounds)),
        *map(str, engine_ports),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        ports: dict[str, int] = json.loads(await process.stdout.readline())
        yield GatewayProcess(process.pid, **ports)
        assert process.returncode is None
    finally:
        process.stdin.close()
        await process.wait()


async def _serve(bounds: dict[str, Any], engine_ports: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with gateway_under_test(Path(folder), **bounds) as running:
            running.put_service()
            running.put_ports(*engine_ports)
            gateway = running.gateway
            lag = asyncio.create_task(gateway.lag.run())
            ports = {
                "public": gateway.public.port,
                "admin": gateway.admin.port,
                "scrape": gateway.scrape.port,
            }
            sys.stdout.write(json.dumps(ports) + "\n")
            sys.stdout.flush()
            await asyncio.to_thread(sys.stdin.read)
            lag.cancel()


if __name__ == "__main__":
    uvloop.run(_serve(json.loads(sys.argv[1]), [int(port) for port in sys.argv[2:]]))
