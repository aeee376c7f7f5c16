"""Predicted beside real waits in the queue, under more load than the engine can serve.

The real engine, scheduler and admission on the simulated runner, whose steps move a clock instead
of taking time. Three tenants send requests at random times, of random lengths, whose answers end
by themselves at random. What bounds the engine is the number of sequences, the KV cache or the
prefill, and who goes first is each discipline's. A request above the limit is refused.

    python engine-image/bench/admission.py [--seconds 600] [--seed 1]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path

from fleetward_api.owner import Owner
from fleetward_engine.admission.limits import AdmissionLimits
from fleetward_engine.config import EngineConfig
from fleetward_engine.engine import Engine
from fleetward_engine.errors import AdmissionRefused
from fleetward_engine.request import CacheContext, Request, SamplingParams
from fleetward_engine.scheduling.policy import FCFS, SchedulingPolicy
from fleetward_engine.sequence import Sequence
from fleetward_engine.simulated_runner import SimulatedRunner
from fleetward_engine.simulation_profile import SimulationProfile
from fleetward_engine.tokenizer import ByteTokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from step_clock import StepClock

from e2e.figures.record import record

FIGURE = "admission-wait-factor"
LIMIT_S = 30.0
WORTH_COUNTING_S = 1.0
"""Waits below a few steps say more about where in a step the request came than of the queue."""
BLOCK_SIZE = 16
STOPS = {"brief": b"etaoin", "usual": b"q", "endless": b""}
"""Each tenant's answers end at one of these letters, about one in 32 each, or at their limit."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What bounds the engine, and how requests come."""

    name: str
    policy: SchedulingPolicy = FCFS
    max_num_seqs: int = 16
    num_blocks: int = 4096
    prompt: tuple[int, int] = (8, 200)
    max_tokens: tuple[int, int] = (16, 160)
    per_second: float = 6.0


SCENARIOS = (
    Scenario("sequences"),
    Scenario("sequences, weighted fair", SchedulingPolicy("weighted-fair")),
    Scenario("sequences, priority", SchedulingPolicy("priority", aging_after_s=5.0)),
    Scenario("kv cache", max_num_seqs=64, num_blocks=160),
    Scenario("prefill", max_num_seqs=64, prompt=(200, 2000), max_tokens=(4, 24), per_second=1.5),
)


@dataclass(slots=True)
class Run:
    """One scenario from its first request to its last answer."""

    scenario: Scenario
    seed: int
    clock: StepClock = field(default_factory=StepClock)
    predicted: dict[str, float] = field(default_factory=dict)
    waited: dict[str, float] = field(default_factory=dict)

    def serve(self, seconds: float) -> Engine:
        """Let requests come for that long; the engine, for its counters."""
        engine = self._engine()
        rng = random.Random(f"{self.seed} {self.scenario.name}")  # noqa: S311
        arrival, count = 0.0, 0
        while arrival < seconds or engine.has_work:
            while arrival < seconds and arrival <= self.clock.now:
                self._send(engine, self._request(rng, arrival, count))
                arrival, count = arrival + rng.expovariate(self.scenario.per_second), count + 1
            if not engine.has_work:
                self.clock.now = max(self.clock.now, min(arrival, seconds))
                continue
            for output in engine.step():
                if output.new_token_ids and output.request_id not in self.waited:
                    self.waited[output.request_id] = output.queue_seconds
        return engine

    def ratios(self) -> list[float]:
        """Predicted over real wait, of each that waited long enough to tell."""
        return [
            self.predicted[name] / waited
            for name, waited in self.waited.items()
            if waited >= WORTH_COUNTING_S
        ]

    def _send(self, engine: Engine, request: Request) -> None:
        sequence = Sequence(request, order=sys.maxsize)
        try:
            engine.admission.check(sequence, self.clock.now, is_fork=False)
        except AdmissionRefused:
            return
        self.predicted[request.request_id] = engine.admission.predicted_wait_s(sequence)
        engine.add_request(request)

    def _request(self, rng: random.Random, arrival: float, count: int) -> Request:
        tenant = rng.choice(sorted(STOPS))
        return Request(
            request_id=f"{tenant} {count}",
            prompt_token_ids=tuple(
                rng.randrange(256) for _ in range(rng.randint(*self.scenario.prompt))
            ),
            sampling=SamplingParams(
                max_tokens=rng.randint(*self.scenario.max_tokens),
                stop_token_ids=tuple(STOPS[tenant]),
            ),
            cache=CacheContext(root=None, owner=Owner.of(tenant)),
            arrival=arrival,
            priority=len(tenant) % 3,
        )

    def _engine(self) -> Engine:
        config = EngineConfig(
            model_uri="package://none",
            served_model_names=("bench",),
            runner="simulated",
            max_num_seqs=self.scenario.max_num_seqs,
            max_num_batched_tokens=512,
            block_size=BLOCK_SIZE,
            scheduling=self.scenario.policy,
        )
        runner = SimulatedRunner(
            SimulationProfile(),
            num_blocks=self.scenario.num_blocks,
            block_size=BLOCK_SIZE,
            sleep=self.clock.advance,
        )
        engine = Engine(config, runner, ByteTokenizer(), self.clock)
        engine.admission.follow(AdmissionLimits(max_predicted_wait_s=LIMIT_S))
        return engine


def main() -> int:
    """Measure, print one JSON line, keep the figure; exits 1 beyond the target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="of simulated time")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    medians, line = {}, {}
    for scenario in SCENARIOS:
        run = Run(scenario, options.seed)
        refused = run.serve(options.seconds).stats().admission_refusals["predicted_wait"]
        ratios = run.ratios()
        tenths = statistics.quantiles(ratios, n=10)
        medians[scenario.name] = statistics.median(ratios)
        line[scenario.name] = {
            "median": round(medians[scenario.name], 2),
            "p10": round(tenths[0], 2),
            "p90": round(tenths[-1], 2),
            "waits": len(ratios),
            "longest wait, s": round(max(run.waited.values()), 1),
            "refused": refused,
        }
    factors = {name: max(ratio, 1 / ratio) for name, ratio in medians.items()}
    worst = max(factors, key=factors.__getitem__)
    record(FIGURE, round(factors[worst], 2), f"worst of {len(SCENARIOS)} loads: {worst}")
    sys.stdout.write(json.dumps({FIGURE: round(factors[worst], 2), **line}, indent=1) + "\n")
    return 0 if factors[worst] <= 2 else 1  # noqa: PLR2004 - the figure's target


if __name__ == "__main__":
    sys.exit(main())
