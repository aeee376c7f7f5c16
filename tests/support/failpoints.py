"""The calls that an operator makes through a proxy, and a trap at one of them."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tests.support.api_proxy import Answer, ApiProxy, Broken, Call

Moment = Literal["before", "after"]
How = Literal["kill", "pause", "expire"]
Strike = Callable[["Point"], Awaitable[Answer | None]]

_UID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_POD = re.compile(r"(?<=/pods/demo-)[0-9a-z]+-[0-9a-z]+")
_NO_WRITES = ("/leases", "/tokenreviews")


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """The `nth` call of one kind (from 1), the moment, and what is done there.

    `kill`: the process gets SIGKILL. `pause`: the call, or its answer, is late. `expire`: a watch
    is answered 410 instead of begun.
    """

    call: str
    nth: int
    moment: Moment = "before"
    how: How = "kill"

    def __str__(self) -> str:
        return f"{self.how} {self.moment} {self.call} #{self.nth}"


@dataclass(slots=True)
class Failpoints:
    """Names and counts the calls that go through `proxy`, and springs a trap at a point.

    `masks` replace what differs from run to run in a path (namespaces). `counts` are the calls by
    name and `writes` the accepted writes, both since `forget`; leases and token reviews are no
    writes. `sprung` is set once the trap has done what it does.
    """

    proxy: ApiProxy
    masks: Mapping[str, str]
    counts: Counter[str] = field(default_factory=Counter)
    writes: list[str] = field(default_factory=list)
    sprung: asyncio.Event = field(default_factory=asyncio.Event)
    _trap: tuple[Point, Strike] | None = None
    _open: dict[int, tuple[str, int]] = field(default_factory=dict)
    _last_at: float = 0.0

    def __post_init__(self) -> None:
        self.proxy.before = self._before
        self.proxy.after = self._after

    def forget(self) -> None:
        """Count from here; no trap is set."""
        self.counts.clear()
        self.writes.clear()
        self.disarm()
        self.sprung.clear()

    def set_trap(self, point: Point, strike: Strike) -> None:
        """Have `strike` called at `point`, once; what it returns is the caller's answer."""
        self._trap = (point, strike)

    def disarm(self) -> None:
        """No trap is set any more; one that was not come to must not spring in what follows."""
        self._trap = None

    def quiet_for(self) -> float:
        """Seconds since the last call or answer, the lease's aside; 0 while a call is open."""
        return 0.0 if self._open else time.monotonic() - self._last_at

    def name(self, call: Call) -> str:
        """What a call is, in words that are the same in every run."""
        path = _POD.sub("POD", _UID.sub("UID", call.path))
        for real, mask in self.masks.items():
            path = path.replace(real, mask)
        kind = "WATCH" if call.is_watch else call.method
        by = " by kopf" if call.agent.startswith("kopf") else ""
        return f"{kind} {path}{by}"

    async def _before(self, call: Call) -> Answer | None:
        name = self.name(call)
        self.counts[name] += 1
        nth = self.counts[name]
        if not call.path.endswith("leases/fleetward-operator"):
            self._open[call.index] = (name, nth)
            self._last_at = time.monotonic()
            task = asyncio.current_task()
            if task is not None:
                # A caller that dies, or gives up, never comes to the answer.
                task.add_done_callback(lambda _: self._open.pop(call.index, None))
        return await self._spring(name, nth, "before")

    async def _after(self, call: Call, status: int) -> None:
        name = self.name(call)
        accepted = call.method != "GET" and status < 300
        if accepted and not any(part in name for part in _NO_WRITES):
            self.writes.append(name)
        self._last_at = time.monotonic()
        _, nth = self._open.pop(call.index, (name, self.counts[name]))
        await self._spring(name, nth, "after")

    async def _spring(self, name: str, nth: int, moment: Moment) -> Answer | None:
        if self._trap is None:
            return None
        point, strike = self._trap
        if (point.call, point.nth, point.moment) != (name, nth, moment):
            return None
        self._trap = None
        try:
            answer = await strike(point)
        finally:
            self.sprung.set()
        if point.how == "kill":
            raise Broken
        return answer
