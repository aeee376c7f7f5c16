"""What a client may ask for that this engine does not do: refused by name, never just dropped.

A value that means "the default" is accepted, so that clients which send every field keep working.
"""

from __future__ import annotations

from fleetward_api.openai import CODE_INVALID_VALUE
from fleetward_engine.server.errors import ApiError, refused
from fleetward_engine.server.openai_models import (
    MAX_CHOICES,
    ChatCompletionBody,
    CompletionBody,
    GenerationBody,
    Message,
)

_TIERS = frozenset({"auto", "default"})
_MAX_METADATA = 16


def check_supported(body: ChatCompletionBody | CompletionBody) -> None:
    """Raise a 400 `ApiError` for the first parameter that cannot be honoured."""
    fault = _shared(body) or (
        _chat(body) if isinstance(body, ChatCompletionBody) else _completion(body)
    )
    if fault is not None:
        raise fault


def _shared(body: GenerationBody) -> ApiError | None:
    if body.best_of not in (None, body.n or 1):
        return refused("best_of", "best_of must be the same as n: every completion is returned.")
    if body.priority:
        return refused("priority", "priority is set by the Tenant, not by a request.")
    if body.metadata and not _is_metadata(body.metadata):
        message = f"metadata takes at most {_MAX_METADATA} pairs of strings."
        return refused("metadata", message, code=CODE_INVALID_VALUE)
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
    if body.top_logprobs and not body.logprobs:
        message = "top_logprobs needs logprobs=true."
        return refused("top_logprobs", message, code=CODE_INVALID_VALUE)
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
    if body.echo and body.logprobs is not None:
        message = "logprobs of an echoed prompt are not computed: leave out echo or logprobs."
        return refused("logprobs", message)
    if body.suffix:
        return refused("suffix", "suffix is not supported by this engine.")
    count = len(body.prompts())
    if count * (body.n or 1) > MAX_CHOICES:
        param = "prompt" if count > MAX_CHOICES else "n"
        message = f"{count} prompts with n={body.n or 1} make more than {MAX_CHOICES} completions."
        return refused(param, message, code=CODE_INVALID_VALUE)
    return None


def _is_metadata(metadata: dict[str, object]) -> bool:
    return len(metadata) <= _MAX_METADATA and all(isinstance(v, str) for v in metadata.values())
