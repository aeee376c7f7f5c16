"""Two engines that must not be told apart: one served a tenant and purged it, one never saw it."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fleetward_api.scope import Scope
from fleetward_engine.errors import DeadlineUnreachable, RequestRefused
from fleetward_engine.outputs import RequestOutput
from fleetward_engine.scheduling.policy import SchedulingPolicy
from fleetward_engine.share_rules import ShareRules
from tests.support.engine_core import Bench, make_bench, make_request

VICTIM, OTHERS = "victim", ("acme", "beta")
FLOOR = 1
POLICIES = (
    SchedulingPolicy(), SchedulingPolicy("priority", 2.0), SchedulingPolicy("weighted-fair"),
)  # fmt: skip
RULES = (
    ShareRules(),
    ShareRules(protected_percent=50, by_priority=True),
    ShareRules(max_percent=60, guaranteed_percent=25, protected_percent=20),
    ShareRules(max_percent=45, guaranteed_percent=50),
)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens to an engine; `fields` are the request's of an "ask"."""

    kind: Literal["ask", "step", "wait", "abort"]
    name: str = ""
    times: int = 1
    seconds: float = 0.0
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass
class Twin:
    """One engine, and everything about it that its tenants and its operators could notice."""

    bench: Bench
    evicted: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bench.runner._sleep = self.bench.clock.advance
        index = self.bench.engine._kv_cache.index
        remove = index.remove

        def watched(entry: Any, why: Any) -> Any:
            left = remove(entry, why)
            self.evicted += [f"{why} {each.key.hex()}" for each in left]
            return left

        index.remove = watched  # type: ignore[method-assign]

    def go(self, events: Sequence[Event], *, past: str = "") -> list[object]:
        """What is noticed after each event; requests whose name begins with `past` are not told."""
        noticed: list[object] = [(self._do(event, past), self._seen()) for event in events]
        self.bench.engine.check_integrity()
        return noticed

    def purge(self, in_flight: Literal["Finish", "Abort"]) -> None:
        """The victim's cache goes, as a purge order makes it go."""
        governance, scope = self.bench.engine.governance, Scope(VICTIM)
        governance.fence(scope, FLOOR, in_flight)
        governance.purge(scope, FLOOR, scrub=True)
        assert governance.recount(scope, FLOOR) == governance.residue(scope, FLOOR) == 0
        self.evicted.clear()

    def _do(self, event: Event, past: str) -> object:
        bench = self.bench
        if event.kind == "ask":
            request = make_request(
                event.name, arrival=bench.clock.now, **_with_deadline(event.fields, bench.clock.now)
            )
            try:
                bench.engine.add_request(request)
            except (RequestRefused, DeadlineUnreachable) as refusal:
                return repr(refusal)
            return None
        if event.kind == "abort":
            return bench.engine.abort_request(event.name)
        if event.kind == "wait":
            bench.clock.advance(event.seconds)
            return bench.engine.governance.expire(bench.clock.now)
        outputs: list[RequestOutput] = []
        for _ in range(event.times):
            if bench.engine.has_work:
                outputs += bench.engine.step()
        told = [each for each in outputs if not (past and each.request_id.startswith(past))]
        return sorted(told, key=lambda output: output.request_id)

    def _seen(self) -> tuple[object, ...]:
        engine = self.bench.engine
        stats, scheduler = engine.stats(), engine._scheduler
        evicted, self.evicted = self.evicted, []
        return (
            self.bench.clock.now, [one.request.request_id for one in scheduler.waiting],
            [one.request.request_id for one in scheduler.running],
            stats.kv_blocks_used, stats.cached_blocks, stats.kv_blocks_guaranteed,
            {name: share for name, share in stats.shares.items() if share.in_use or share.cached},
            evicted,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where the two engines first differ, if anywhere; and what the later history came to."""

    difference: str | None
    hits: int
    evictions: int


def outcome(seed: int) -> Outcome | None:
    """One random history; None where the victim took room that another's cache was in.

    What it pushed out by rights while it was there is no trace of its data.
    """
    rng = random.Random(seed)  # noqa: S311 - a workload, not a secret
    blocks, rules = rng.choice([10, 14, 20]), rng.choice(RULES)
    settings: dict[str, Any] = {
        "num_blocks": blocks, "block_size": 2, "max_num_seqs": rng.randint(1, 4),
        "max_num_batched_tokens": rng.randint(4, 12), "scheduling": rng.choice(POLICIES),
    }  # fmt: skip
    twins = [Twin(make_bench(**settings)) for _ in range(2)]
    before = _events(rng, OTHERS, "before", longest=4, count=rng.randint(0, 6))
    for twin in twins:
        twin.bench.engine.governance.set_share_rules(rules)
        twin.go([*_FULL_SPEED, *before, *_UNTIL_IDLE])
    saw, never = twins
    # Its own limit may push out what is its own, and times to live may end: that is no one else's.
    saw.evicted.clear()
    held = _held_by_others(saw)
    saw.go(_events(rng, (VICTIM,), "past", longest=8, count=rng.randint(1, 12)))
    if _held_by_others(saw) < held:
        return None
    saw.purge("Abort")
    never.bench.clock.now = saw.bench.clock.now
    never.purge("Abort")
    later = _events(rng, (*OTHERS, VICTIM), "later", longest=9, count=rng.randint(10, 40))
    told = [twin.go([*later, *_UNTIL_IDLE], past="past") for twin in twins]
    return _compare(*told)


_UNTIL_IDLE = [Event("step", times=1000)]
_FULL_SPEED = [
    Event("ask", "before", fields={"prompt": [1] * 4, "max_tokens": 1, "patience": math.inf}),
    *_UNTIL_IDLE,
]
"""How fast the machine computes prompts is known to both: it is nobody's data."""


def _compare(saw: list[object], never: list[object]) -> Outcome:
    pairs = enumerate(zip(saw, never, strict=True))
    difference = next((f"event {n}: {one} != {other}" for n, (one, other) in pairs
                       if one != other), None)  # fmt: skip
    text = repr(never)
    hits = text.count("cached_tokens=") - text.count("cached_tokens=0")
    return Outcome(difference, hits, text.count("'pool ") + text.count("'quota "))


def _held_by_others(twin: Twin) -> set[bytes]:
    twin.bench.engine.governance.expire(twin.bench.clock.now)
    index = twin.bench.engine._kv_cache.index
    return {key for key, each in index._entries.items() if each.owner.scope != Scope(VICTIM)}


def _events(
    rng: random.Random, tenants: Sequence[str], prefix: str, *, longest: int, count: int
) -> list[Event]:
    """`count` events; prompts are few, so that they are asked again and found."""
    events: list[Event] = []
    names: list[str] = []
    for number in range(count):
        kind = rng.choice(["ask", "ask", "ask", "step", "step", "wait", "abort"])
        if kind == "ask":
            names.append(f"{prefix} {number}")
            who = rng.choice(list(tenants))
            fields = _request_fields(rng, who, longest, floor=FLOOR if prefix == "later" else 0)
            events.append(Event("ask", names[-1], fields=fields))
        elif kind == "step":
            events.append(Event("step", times=rng.randint(1, 8)))
        elif kind == "wait":
            events.append(Event("wait", seconds=rng.choice([0.01, 1.0, 4.0])))
        elif names:
            events.append(Event("abort", rng.choice(names)))
    return events


def _request_fields(rng: random.Random, who: str, longest: int, *, floor: int) -> dict[str, Any]:
    length = rng.randint(1, longest)
    return {
        "prompt": [100 + (place >= rng.randint(0, length)) for place in range(length)],
        "scope": Scope(who),
        "floor": floor if who == VICTIM else 0,
        "max_tokens": rng.randint(1, 4),
        "store": rng.random() < 0.9,
        "idle_ttl_ms": rng.choice([None, None, 500, 3000]),
        "max_ttl_ms": rng.choice([None, None, 2000]),
        "priority": 1 if who == VICTIM else 0,
        "weight": {VICTIM: 3, "acme": 1, "beta": 2}[who],
        "patience": rng.choice([math.inf, math.inf, 0.05, 1.0]),
    }


def _with_deadline(fields: dict[str, Any], now: float) -> dict[str, Any]:
    """A deadline is a moment, and the two engines' clocks say the same."""
    rest = dict(fields)
    return {"deadline": now + rest.pop("patience"), **rest}
