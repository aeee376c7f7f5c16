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
from fleetward_engine.server.openai_tools import NamedTool

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
    shape = body.response_format
    if shape is not None and shape.type == "json_schema" and shape.json_schema is None:
        where = "response_format.json_schema"
        return refused(where, f"{where} is missing.", code=CODE_INVALID_VALUE)
    if shape is not None and shape.type != "text" and body.min_tokens:
        return refused("min_tokens", "min_tokens can't be combined with response_format.")
    if body.cache_salt:
        message = "cache_salt is not supported: reuse is bounded by the service's CachePolicy."
        return refused("cache_salt", message)
    if body.prompt_logprobs is not None:
        message = "prompt_logprobs is not supported: ask for echo and logprobs of a completion."
        return refused("prompt_logprobs", message)
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
    if body.functions:
        return refused("functions", "functions are not supported: use tools.")
    if body.function_call not in (None, "none", "auto"):
        return refused("function_call", "function_call is not supported: use tool_choice.")
    if (fault := _tools(body)) is not None:
        return fault
    if body.modalities is not None and body.modalities != ["text"]:
        return refused("modalities", 'Only modalities ["text"] is supported.')
    for param in ("audio", "prediction", "web_search_options"):
        if getattr(body, param) is not None:
            return refused(param, f"{param} is not supported by this engine.")
    if body.reasoning_effort not in (None, "none"):
        return refused("reasoning_effort", "reasoning_effort is not supported by this engine.")
    called: set[str] = set()
    faults = (_message(index, each, called) for index, each in enumerate(body.messages))
    return next((fault for fault in faults if fault is not None), None)


def _tools(body: ChatCompletionBody) -> ApiError | None:
    names = [tool.function.name for tool in body.tools or ()]
    choice = body.tool_choice
    if choice not in (None, "none", "auto") and not names:
        return refused("tool_choice", "tool_choice needs tools.", code=CODE_INVALID_VALUE)
    if isinstance(choice, NamedTool) and choice.function.name not in names:
        message = f"tool_choice: {choice.function.name!r} is none of the tools."
        return refused("tool_choice", message, code=CODE_INVALID_VALUE)
    if len(set(names)) < len(names):
        return refused("tools", "Two tools have one name.", code=CODE_INVALID_VALUE)
    if not names or choice == "none":
        return None
    if body.min_tokens:
        return refused("min_tokens", "min_tokens can't be combined with tools.")
    return None


def _message(index: int, message: Message, called: set[str]) -> ApiError | None:
    """Check one message; `called` are the ids of tool calls in those before."""
    where = f"messages[{index}]"
    if message.role == "function" or message.function_call:
        return refused(where, f"{where}: function messages are not supported: use tools.")
    if message.tool_calls and message.role != "assistant":
        param = f"{where}.tool_calls"
        return refused(param, f"{param}: only the assistant calls.", code=CODE_INVALID_VALUE)
    called.update(call.id for call in message.tool_calls or ())
    if message.role == "tool" and message.tool_call_id not in called:
        param = f"{where}.tool_call_id"
        said = f"{param} names no call of a message before it."
        return refused(param, said, code=CODE_INVALID_VALUE)
    if message.content is None and message.tool_calls:
        return None
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
