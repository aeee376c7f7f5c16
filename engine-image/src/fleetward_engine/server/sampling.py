"""From a checked request body to sampling parameters that fit the model."""

from __future__ import annotations

from dataclasses import dataclass

from fleetward_engine.errors import RequestRefused
from fleetward_engine.request import SamplingParams
from fleetward_engine.server.errors import ApiError, too_long
from fleetward_engine.server.openai_models import (
    ChatCompletionBody,
    CompletionBody,
    GenerationBody,
)

COMPLETION_MAX_TOKENS = 16
"""What `/v1/completions` generates when the client names no limit (OpenAI's documented default)."""


MAX_BIASES = 1024
_DIGITS = 12
_BEYOND = 1000
"""Out of range, for the engine to refuse, and small enough to be a float."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may use: tokens of prompt and completion together, and token ids."""

    context_tokens: int
    vocab_size: int


def sampling_params(
    body: ChatCompletionBody | CompletionBody, *, prompt_tokens: int, limits: Limits
) -> SamplingParams:
    """How the request wants its tokens chosen.

    Raises:
        ApiError: 400 ``context_length_exceeded`` when prompt and completion don't fit, 400 that
            names the parameter for values the engine refuses.
    """
    max_tokens = _max_tokens(body, prompt_tokens=prompt_tokens, limit=limits.context_tokens)
    stop = body.stop
    try:
        return SamplingParams(
            max_tokens=max_tokens,
            min_tokens=body.min_tokens or 0,
            temperature=_or(body.temperature, 1.0),
            top_p=_or(body.top_p, 1.0),
            top_k=max(body.top_k or 0, 0),
            min_p=_or(body.min_p, 0.0),
            seed=body.seed,
            stop=(stop,) if isinstance(stop, str) else tuple(stop or ()),
            stop_token_ids=_stop_tokens(body, limits.vocab_size),
            ignore_eos=bool(body.ignore_eos),
            presence_penalty=_or(body.presence_penalty, 0.0),
            frequency_penalty=_or(body.frequency_penalty, 0.0),
            repetition_penalty=_or(body.repetition_penalty, 1.0),
            logprobs=_logprobs(body),
            prompt_logprobs=_prompt_logprobs(body),
            logit_bias=_logit_bias(body, limits.vocab_size),
        )
    except RequestRefused as fault:
        raise refusal(fault) from fault


def refusal(fault: RequestRefused) -> ApiError:
    """The engine's own refusal as a 400."""
    return ApiError(400, str(fault), param=fault.param or None, code="invalid_value")


def _max_tokens(
    body: ChatCompletionBody | CompletionBody, *, prompt_tokens: int, limit: int
) -> int:
    chat = isinstance(body, ChatCompletionBody)
    left = limit - prompt_tokens
    asked = body.max_tokens
    if isinstance(body, ChatCompletionBody):
        asked = body.max_completion_tokens or body.max_tokens
    if left < 1:
        param = "messages" if chat else "prompt"
        raise too_long(param, prompt_tokens=prompt_tokens, max_tokens=asked, limit=limit)
    if asked is None:
        return left if chat else min(COMPLETION_MAX_TOKENS, left)
    if asked > left:
        raise too_long("max_tokens", prompt_tokens=prompt_tokens, max_tokens=asked, limit=limit)
    return asked


def _logprobs(body: ChatCompletionBody | CompletionBody) -> int | None:
    if isinstance(body, CompletionBody):
        return body.logprobs
    return (body.top_logprobs or 0) if body.logprobs else None


def _prompt_logprobs(body: ChatCompletionBody | CompletionBody) -> int | None:
    """An echoed prompt is told as the rest of the text is."""
    return body.logprobs if isinstance(body, CompletionBody) and body.echo else None


def _logit_bias(body: GenerationBody, vocab_size: int) -> tuple[tuple[int, float], ...]:
    """Checked by hand: pydantic would make an error for each of a million wrong values."""
    biases = body.logit_bias or {}
    if len(biases) > MAX_BIASES:
        raise _bad_bias(f"logit_bias takes at most {MAX_BIASES} tokens.")
    pairs: dict[int, float] = {}
    for token, bias in biases.items():
        if not (token.isascii() and token.isdecimal() and int(token[:_DIGITS]) < vocab_size):
            raise _bad_bias(f"logit_bias: this model's token ids are below {vocab_size}.")
        if isinstance(bias, bool) or not isinstance(bias, int | float):
            raise _bad_bias(f"logit_bias: the bias of token {token[:_DIGITS]} is no number.")
        pairs[int(token)] = float(max(min(bias, _BEYOND), -_BEYOND))
    return tuple(pairs.items())


def _bad_bias(message: str) -> ApiError:
    return ApiError(400, message, param="logit_bias", code="invalid_value")


def _stop_tokens(body: GenerationBody, vocab_size: int) -> tuple[int, ...]:
    tokens = tuple(body.stop_token_ids or ())
    if any(token >= vocab_size for token in tokens):
        message = f"stop_token_ids: this model's token ids are below {vocab_size}."
        raise ApiError(400, message, param="stop_token_ids", code="invalid_value")
    return tokens


def _or(value: float | None, default: float) -> float:
    return default if value is None else float(value)
