"""From logits to tokens. Each row is decided by itself, so a batch never changes a choice."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fleetward_engine.model_runner import Sampled, SampleRow
from fleetward_engine.outputs import TokenLogprobs
from fleetward_engine.random_numbers import uniform
from fleetward_engine.request import SamplingParams

_HEAD = 1024
"""Top-p and min-p look at this many likeliest tokens first: a full sort costs 50 times more."""


def sample(logits: Tensor, rows: Sequence[SampleRow]) -> list[Sampled]:
    """Choose one token a row; a row with NaN or infinity at its top gets none.

    Args:
        logits: [rows, vocab], any float type.
        rows: what each row asks for, in the order of `logits`.
    """
    # NaN counts as the largest, so the maximum alone tells whether a row can be used.
    maxima, likeliest = (each.tolist() for each in logits.max(dim=-1))
    return [
        _sample_row(logits[index], row, likeliest[index])
        if math.isfinite(maxima[index])
        else Sampled(None)
        for index, row in enumerate(rows)
    ]


def score(logits: Tensor, targets: Sequence[int], *, top: int) -> list[TokenLogprobs]:
    """How likely known tokens were, one a row, with the `top` likeliest beside each.

    Args:
        logits: [rows, vocab], any float type; of the model alone, as for generated tokens.
        targets: a token id a row.
        top: how many of the likeliest.
    """
    logprobs = torch.log_softmax(logits.float(), dim=-1)
    ids = torch.tensor(targets, device=logprobs.device)
    own = logprobs.gather(1, ids[:, None]).squeeze(1).tolist()
    values, likeliest = (each.tolist() for each in logprobs.topk(top))
    return [
        TokenLogprobs(target, own[row], tuple(zip(likeliest[row], values[row], strict=True)))
        for row, target in enumerate(targets)
    ]


def choose(logits: Tensor, params: SamplingParams, number: float) -> int:
    """Draw from the filtered distribution by inverting its cumulative sum at `number`.

    `logits` is [vocab], finite or -inf; `number` is in [0, 1).
    """
    # From the largest down, so that the smallest temperature sends none of them to infinity.
    scaled = (logits.double() - logits.max()) / params.temperature
    if params.top_k == 0 and params.top_p == 1.0 and params.min_p == 0.0:
        return _invert(torch.softmax(scaled, dim=-1), number)
    total = torch.logsumexp(scaled, dim=-1)
    head = min(params.top_k or _HEAD, scaled.numel())
    values, ids = scaled.topk(head)
    keep = _count_kept((values - total).exp(), params)
    if keep == head and params.top_k == 0 and head < scaled.numel():
        # The head may have been too short to show where the filters cut.
        values, ids = scaled.sort(descending=True)
        keep = _count_kept((values - total).exp(), params)
    return int(ids[_invert(torch.softmax(values[:keep], dim=-1), number)])


def penalise(logits: Tensor, row: SampleRow) -> Tensor:
    """Logits [vocab] after penalties, biases, the grammar and bans; a new tensor."""
    logits = logits.clone()
    params = row.params
    if params.repetition_penalty != 1.0:
        seen = torch.tensor(sorted({*row.prompt_token_ids, *row.output_token_ids}))
        scores = logits[seen]
        factor = params.repetition_penalty
        rewarded = (scores / factor).clamp(max=torch.finfo(logits.dtype).max)
        logits[seen] = torch.where(scores > 0, rewarded, scores * factor)
    if row.output_token_ids and (params.frequency_penalty or params.presence_penalty):
        counts = Counter(row.output_token_ids)
        times = torch.tensor(list(counts.values()), dtype=logits.dtype)
        logits[list(counts)] -= times * params.frequency_penalty + params.presence_penalty
    if params.logit_bias:
        ids, biases = zip(*params.logit_bias, strict=True)
        logits[list(ids)] += torch.tensor(biases, dtype=logits.dtype)
    if row.allowed is not None:
        logits.masked_fill_(~_unpack(row.allowed, logits.numel()), -math.inf)
    if row.banned_token_ids:
        logits[sorted(row.banned_token_ids)] = -math.inf
    return logits


def _sample_row(logits: Tensor, row: SampleRow, likeliest: int) -> Sampled:
    params = row.params
    logprobs_wanted = params.logprobs is not None
    changed = (
        params.has_penalties
        or row.allowed is not None
        or bool(params.logit_bias or row.banned_token_ids)
    )
    if params.greedy and not changed and not logprobs_wanted:
        return Sampled(likeliest)
    raw = logits.float().cpu()
    final = penalise(raw, row) if changed else raw
    if row.allowed is not None and not bool(final.isfinite().any()):
        return Sampled(None)
    if params.greedy:
        token = int(final.argmax())
    else:
        number = uniform(seed=row.seed, choice=row.choice, index=row.index)
        token = choose(final, params, number)
    if params.logprobs is None:
        return Sampled(token)
    return Sampled(token, _logprobs(raw, token, params.logprobs))


def _unpack(allowed: bytes, size: int) -> Tensor:
    """A bit a token as a bool a logit, [size]; logits beyond the vocabulary are never allowed."""
    bits = np.unpackbits(np.frombuffer(allowed, dtype=np.uint8), count=size, bitorder="little")
    return torch.from_numpy(bits).bool()


def _count_kept(probs: Tensor, params: SamplingParams) -> int:
    """How many of the likeliest tokens pass; probs: [head] of all tokens, best first."""
    keep = probs.numel()
    if params.min_p > 0.0:
        keep = int((probs >= params.min_p * probs[0]).sum())
    if params.top_p < 1.0:
        # With top-k, top-p counts in what top-k left; else in everything.
        mass = probs.sum() if params.top_k else torch.ones((), dtype=probs.dtype)
        before = probs.cumsum(0) - probs
        keep = min(keep, int((before < params.top_p * mass).sum()))
    return max(keep, 1)


def _invert(probs: Tensor, number: float) -> int:
    cumulative = probs.cumsum(0)
    place = torch.searchsorted(cumulative, number * float(cumulative[-1]), right=True)
    # Rounding may place the number behind the last sum; the last token with any mass is meant.
    last = int(probs.nonzero()[-1])
    return min(int(place), last)


def _logprobs(logits: Tensor, token: int, count: int) -> TokenLogprobs:
    logprobs = torch.log_softmax(logits, dim=-1)
    values, ids = logprobs.topk(count)
    top = tuple(zip(ids.tolist(), values.tolist(), strict=True))
    return TokenLogprobs(token, float(logprobs[token]), top)
