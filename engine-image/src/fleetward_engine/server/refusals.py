"""What a client may ask for that this engine does not do: refused by name, never just dropped.

A value that means "the default" is accepted, so that clients which send every field keep working.
"""

from __future__ import annotations

from fleetward_engine.server.errors import ApiError, refused
from fleetward_engine.server.openai_models import (
    ChatCompletionBody,
    CompletionBody,
    GenerationBody,
    Message,
)

_TIERS = frozenset({"auto", "default"})


def check_supported(body: ChatCompletionBody | CompletionBody) -> None:
    """Raise a 400 `ApiError` for the first parameter that cannot be honoured."""
    fault = _shared(body) or (
        _chat(body) if isinstance(body, ChatCompletionBody) else _completion(body)
    )
    if fault is not None:
        raise fault


def _shared(body: GenerationBody) -> ApiError | None:
    if (body.n or 1) > 1:
        return refused("n", "Only n=1 is supported: send one request per completion.")
    if (body.best_of or 1) > 1:
        return refused("best_of", "Only best_of=1 is supported.")
    if body.logit_bias:
        return refused("logit_bias", "logit_bias is not supported by this engine.")
    if body.response_format is not None and body.response_format.type != "text":
        return refused("response_format", 'Only response_format {"type": "text"} is supported.')
    if body.cache_salt:
        message = "cache_salt is not supported: reuse is bounded by the service's CachePolicy."
        return refused("cache_salt", message)
    if body.store:
        return refused("store", "Completions are not stored: leave store out or set it to false.")
    if body.service_tier is not None and body.service_tier not in _TIERS:
        return refused("service_tier", 'service_tier must be "auto" or "default".')
    if body.stream_options is not None and not body.stream:
        return refused("stream_options", "stream_options is only allowed with stream=true.")
    return None


def _chat(body: ChatCompletionBody) -> ApiError | None:
    if body.logprobs or body.top_logprobs:
        param = "logprobs" if body.logprobs else "top_logprobs"
        return refused(param, f"{param} is not supported by this engine.")
    if body.tools or body.functions:
        param = "tools" if body.tools else "functions"
        return refused(param, f"{param} are not supported by this engine.")
    if body.tool_choice not in (None, "none", "auto"):
        return refused("tool_choice", "tool_choice needs tools, which are not supported.")
    if body.function_call not in (None, "none", "auto"):
        return refused("function_call", "function_call needs functions, which are not supported.")
    if body.modalities is not None and body.modalities != ["text"]:
        return refused("modalities", 'Only modalities ["text"] is supported.')
    for param in ("audio", "prediction", "web_search_options"):
        if getattr(body, param) is not None:
            return refused(param, f"{param} is not supported by this engine.")
    if body.reasoning_effort not in (None, "none"):
        return refused("reasoning_effort", "reasoning_effort is not supported by this engine.")
    return next((fault for fault in map(_message, enumerate(body.messages)) if fault), None)


def _message(numbered: tuple[int, Message]) -> ApiError | None:
    index, message = numbered
    where = f"messages[{index}]"
    if message.role in ("tool", "function") or message.tool_calls or message.function_call:
        return refused(where, f"{where}: tool and function messages are not supported.")
    if message.content is None:
        return refused(f"{where}.content", f"{where}.content is missing.", code="invalid_value")
    if isinstance(message.content, str):
        return None
    for number, part in enumerate(message.content):
        if part.type != "text" or part.text is None:
            param = f"{where}.content[{number}]"
            return refused(param, f"{param}: only parts of type text are supported.")
    return None


def _completion(body: CompletionBody) -> ApiError | None:
    if body.logprobs is not None:
        return refused("logprobs", "logprobs is not supported by this engine.")
    if body.echo:
        return refused("echo", "echo is not supported by this engine.")
    if body.suffix:
        return refused("suffix", "suffix is not supported by this engine.")
    several = isinstance(body.prompt, list) and len(body.prompt) > 1
    if several and not isinstance(body.prompt[0], int):
        return refused("prompt", "Send one prompt per request: lists of prompts are not supported.")
    return None
