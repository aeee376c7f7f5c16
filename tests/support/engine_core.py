"""An engine without a model, a clock that tests move, and what it must answer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fleetward_api.owner import Owner
from fleetward_api.scope import Scope
from fleetward_engine.config import EngineConfig
from fleetward_engine.engine import Engine
from fleetward_engine.outputs import RequestOutput
from fleetward_engine.request import CacheContext, Request, SamplingParams
from fleetward_engine.simulated_runner import _ALPHABET, SimulatedRunner
from fleetward_engine.simulation_profile import SimulationProfile
from fleetward_engine.tokenizer import ByteTokenizer

ACME, BETA = Scope("acme"), Scope("beta")


@dataclass
class Clock:
    """Monotonic seconds under a test's control."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Bench:
    """An engine with its runner and clock, and every output so far by request."""

    engine: Engine
    runner: SimulatedRunner
    clock: Clock
    outputs: dict[str, list[RequestOutput]] = field(default_factory=dict)

    def step(self) -> list[RequestOutput]:
        outputs = self.engine.step()
        self.engine.check_integrity()
        for output in outputs:
            self.outputs.setdefault(output.request_id, []).append(output)
        return outputs

    def run(self, *requests: Request) -> list[RequestOutput]:
        """Add requests, step until nothing is left; returns each one's last output, in order."""
        for request in requests:
            self.engine.add_request(request)
        while self.engine.has_work:
            self.step()
        return [self.outputs[request.request_id][-1] for request in requests]

    def tokens(self, request_id: str) -> list[int]:
        return [t for output in self.outputs[request_id] for t in output.new_token_ids]

    def text(self, request_id: str) -> str:
        return "".join(output.text_delta for output in self.outputs[request_id])


def make_bench(*, num_blocks: int = 64, block_size: int = 4, **settings: object) -> Bench:
    """A simulated engine that takes no time; `settings` are those of `EngineConfig`."""
    runner = SimulatedRunner(
        SimulationProfile(), num_blocks=num_blocks, block_size=block_size, sleep=lambda _: None
    )
    defaults: dict[str, object] = {
        "model_uri": "package://none",
        "served_model_names": ("m",),
        "runner": "simulated",
        "block_size": block_size,
    }
    config = EngineConfig(**{**defaults, **settings})  # type: ignore[arg-type]
    clock = Clock()
    return Bench(Engine(config, runner, ByteTokenizer(), clock), runner, clock)


def root_of(scope: Scope, floor: int = 0, epoch: int = 1) -> bytes:
    """A cache root that differs by tenant, floor and epoch, as the real formula's do."""
    return root_of_owner(Owner.of(scope.tenant, floor), epoch)


def root_of_owner(owner: Owner, epoch: int = 1) -> bytes:
    """A cache root that differs by every scope, its floor and the epoch."""
    return hashlib.sha256(f"{owner}/{epoch}".encode()).digest()


def make_request(
    request_id: str,
    prompt: Iterable[int],
    *,
    scope: Scope = ACME,
    floor: int = 0,
    owner: Owner | None = None,
    epoch: int = 1,
    cached: bool = True,
    store: bool = True,
    idle_ttl_ms: int | None = None,
    max_ttl_ms: int | None = None,
    sampling: SamplingParams | None = None,
    retention_class: str = "",
    max_tokens: int = 4,
    **terms: Any,
) -> Request:
    """`owner` where `scope`, a tenant's, and `floor` don't say all; `terms` go into `Request`."""
    owner = owner or Owner.of(scope.tenant, floor)
    cache = CacheContext(
        root=root_of_owner(owner, epoch) if cached else None,
        owner=owner,
        store=store,
        idle_ttl_ms=idle_ttl_ms,
        max_ttl_ms=max_ttl_ms,
        retention_class=retention_class,
    )
    return Request(
        request_id=request_id,
        prompt_token_ids=tuple(prompt),
        sampling=sampling or SamplingParams(max_tokens=max_tokens),
        cache=cache,
        **{"arrival": 0.0, **terms},
    )


def expected_tokens(prompt: Sequence[int], count: int) -> list[int]:
    """What the simulated runner must generate, computed without blocks, batches or cache."""
    tokens = list(prompt)
    for _ in range(count):
        digest = hashlib.sha256((np.array(tokens, dtype=np.uint16) + 1).tobytes()).digest()
        tokens.append(_ALPHABET[digest[0] % len(_ALPHABET)])
    return tokens[len(prompt) :]
