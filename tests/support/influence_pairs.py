"""What one tenant is answered, with and without another's having asked the same before or beside.

Two engines around the same model. On one, tenant A asks, and B asks what begins as A's prompts do;
on the other A never was: nobody asks before B, or a stranger asks as much beside it, so that both
compute batches of the same shape. With a model in float64, B's tokens and their log-probabilities
must be equal to the last bit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fleetward_api.scope import Scope
from fleetward_engine.outputs import RequestOutput
from fleetward_engine.request import Request, SamplingParams
from tests.support.engine_core import Bench, make_request

A, B, STRANGER = Scope("a"), Scope("b"), Scope("stranger")
ROUND = 16
"""Pairs that are in one batch together."""
LENGTHS = (4, 40)
TOKENS = 3
Answer = list[tuple[object, ...]]
Prompt = list[int]


@dataclass(frozen=True, slots=True)
class Influence:
    """Over all pairs: answers that changed, and hits of B's, of A's own prompts asked again."""

    pairs: int
    changed: int
    cross_hits: int
    own_hits: int


def influence(make: Callable[[], Bench], *, pairs: int, seed: int) -> Influence:
    """Ask `pairs` pairs, in rounds of which every other one asks beside instead of after."""
    rng = random.Random(seed)  # noqa: S311 - a workload, not a secret
    asked, never_asked = make(), make()
    changed = cross_hits = own_hits = 0
    for number in range(0, pairs, ROUND):
        count = min(ROUND, pairs - number)
        of_a = [_prompt(rng) for _ in range(count)]
        of_b = [_like(rng, prompt) for prompt in of_a]
        seeds = [rng.getrandbits(30) for _ in of_b]

        def ask(bench: Bench, who: Scope, prompts: list[Prompt], first: int = number,
                drawn: Sequence[int] = seeds) -> list[Request]:  # fmt: skip
            requests = [
                _request(f"{who.tenant} {first + place}", prompt, who, seed)
                for place, (prompt, seed) in enumerate(zip(prompts, drawn, strict=True))
            ]
            for request in requests:
                bench.engine.add_request(request)
            return requests

        beside = number // ROUND % 2 == 1
        ask(asked, A, of_a)
        if beside:
            ask(never_asked, STRANGER, [[rng.randrange(256) for _ in each] for each in of_a])
        else:
            _run(asked)
        ask(asked, B, of_b)
        ask(never_asked, B, of_b)
        ours, theirs = _run(asked), _run(never_asked)
        for place in range(number, number + count):
            saw, never = ours[f"b {place}"], theirs[f"b {place}"]
            changed += _answer(saw) != _answer(never)
            cross_hits += saw[-1].cached_tokens > 0
        # One of a single block has none to read: its last token is always computed.
        again = [_request(f"again {number}", max(of_a, key=len), A, 1)]
        own_hits += asked.run(*again)[0].cached_tokens > 0
        for bench in (asked, never_asked):
            bench.outputs.clear()
    return Influence(pairs, changed, cross_hits, own_hits)


def _run(bench: Bench) -> dict[str, list[RequestOutput]]:
    outputs: dict[str, list[RequestOutput]] = {}
    while bench.engine.has_work:
        for output in bench.engine.step():
            outputs.setdefault(output.request_id, []).append(output)
    bench.engine.check_integrity()
    return outputs


def _answer(outputs: list[RequestOutput]) -> Answer:
    """Everything about an answer but when it came."""
    return [(one.new_token_ids, one.text_delta, one.finish_reason, one.cached_tokens, one.logprobs)
            for one in outputs]  # fmt: skip


def _prompt(rng: random.Random) -> Prompt:
    return [rng.randrange(256) for _ in range(rng.randint(*LENGTHS))]


def _like(rng: random.Random, prompt: Prompt) -> Prompt:
    """The same prompt, or one that goes another way after some of it."""
    if rng.random() < 0.5:
        return prompt
    return prompt[: rng.randint(1, len(prompt))] + _prompt(rng)


def _request(name: str, prompt: Prompt, scope: Scope, seed: int) -> Request:
    sampling = SamplingParams(
        max_tokens=TOKENS, temperature=float(seed % 2), seed=seed, logprobs=3, ignore_eos=True
    )
    return make_request(name, prompt, scope=scope, sampling=sampling)
