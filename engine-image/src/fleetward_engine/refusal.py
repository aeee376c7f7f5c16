"""Requests that no amount of waiting would serve are refused before they queue."""

from __future__ import annotations

from collections.abc import Container

from fleetward_engine.errors import RequestRefused
from fleetward_engine.request import Request

SHARE_LOWERED = (
    "the largest share of the KV cache that one tenant may hold was lowered, and this request "
    "needs more: shorten it"
)
"""What the client of a running request reads when a new policy leaves no room for it."""


def kv_tokens_of(request: Request) -> int:
    """Tokens whose KV the request needs at most.

    The last generated token is returned but never computed, so it needs none.
    """
    return len(request.prompt_token_ids) + request.sampling.max_tokens - 1


def refuse_impossible(
    request: Request,
    *,
    max_model_len: int,
    max_kv_tokens: int,
    pool_tokens: int,
    vocab_size: int,
    known_ids: Container[str],
) -> None:
    """Return if the request can be served on an empty engine.

    `max_kv_tokens` of the cache's `pool_tokens` are the most that one tenant may hold.

    Raises:
        RequestRefused: the message says which limit it breaks and what to change.
    """
    prompt, limit = len(request.prompt_token_ids), request.sampling.max_tokens
    if request.request_id in known_ids:
        raise RequestRefused(f"request id {request.request_id!r} is in use")
    if prompt == 0:
        raise RequestRefused("the prompt is empty: give at least one token", param="prompt")
    if prompt + limit > max_model_len:
        raise RequestRefused(
            f"prompt ({prompt} tokens) and max_tokens ({limit}) together exceed the model's "
            f"context of {max_model_len} tokens: shorten one of them",
            param="max_tokens" if prompt < max_model_len else "prompt",
        )
    if kv_tokens_of(request) > max_kv_tokens:
        limit_words = f"the KV cache's {pool_tokens} tokens"
        if max_kv_tokens < pool_tokens:
            limit_words = f"the {max_kv_tokens} of {limit_words} that one tenant may hold"
        raise RequestRefused(
            f"prompt ({prompt} tokens) and max_tokens ({limit}) need more than {limit_words}: "
            "shorten one of them",
            param="max_tokens" if prompt < max_kv_tokens else "prompt",
        )
    for name, ids in (
        ("prompt", request.prompt_token_ids),
        ("stop_token_ids", request.sampling.stop_token_ids),
        ("logit_bias", tuple(token for token, _ in request.sampling.logit_bias)),
    ):
        if ids and not (min(ids) >= 0 and max(ids) < vocab_size):
            raise RequestRefused(
                f"{name} holds a token id outside 0 to {vocab_size - 1}", param=name
            )
