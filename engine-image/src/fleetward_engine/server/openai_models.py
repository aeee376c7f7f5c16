"""Request bodies of the public API, checked field by field.

Fields the engine knows are typed and bounded here. A field that OpenAI or vLLM clients may send
and that the engine cannot honour yet is typed too, and refused by name in `refusals`. Anything else
is ignored, as those servers do.
"""

from __future__ import annotations

from typing import Annotated, Literal, cast

from pydantic import Field

from fleetward_engine.server.openai_base import Body, Items
from fleetward_engine.server.openai_tools import (
    CalledTools,
    ResponseFormat,
    ToolChoice,
    ToolList,
)

MAX_STOP_STRINGS = 4
MAX_STOP_LENGTH = 1024
MAX_STOP_TOKENS = 128
MAX_TOKENS = 2**31 - 1
INT64 = 2**63
MAX_CHOICES = 128
"""Choices of one call: `n` times its prompts. OpenAI's limit of `n`."""
MAX_TOP_LOGPROBS = 20
MAX_USER_LENGTH = 512

StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]
StopList = Annotated[Items[StopString], Field(max_length=MAX_STOP_STRINGS)]
ModelName = Annotated[str, Field(min_length=1, max_length=512)]
TokenId = Annotated[int, Field(ge=0, le=MAX_TOKENS)]
Penalty = Annotated[float, Field(ge=-2, le=2)]


class StreamOptions(Body):
    """``stream_options``: whether a last chunk carries the usage. Chunks are never padded."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class PromptCacheOptions(Body):
    """``prompt_cache_options``: how long a client would like its prompt to stay cached."""

    ttl: Annotated[str, Field(max_length=64)] | None = None


class ContentPart(Body):
    """One part of a message; only text parts are understood."""

    type: str
    text: str | None = None


class Message(Body):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | Items[ContentPart] | None = None
    name: str | None = None
    tool_calls: CalledTools | None = None
    tool_call_id: str | None = None
    function_call: object = None


Messages = Annotated[Items[Message], Field(min_length=1, max_length=4096)]


class GenerationBody(Body):
    """What chat completions and completions share."""

    model: ModelName
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    min_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=MAX_TOKENS)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=-INT64, lt=INT64)] | None = None
    stop: StopString | StopList | None = None
    stop_token_ids: Annotated[Items[TokenId], Field(max_length=MAX_STOP_TOKENS)] | None = None
    ignore_eos: bool | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    best_of: Annotated[int, Field(ge=1)] | None = None
    logit_bias: dict[str, object] | None = None
    priority: int | None = None
    user: Annotated[str, Field(max_length=MAX_USER_LENGTH)] | None = None
    safety_identifier: Annotated[str, Field(max_length=MAX_USER_LENGTH)] | None = None
    metadata: dict[str, object] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    prompt_cache_retention: Annotated[str, Field(max_length=64)] | None = None
    cache_salt: str | None = None
    prompt_logprobs: object = None
    store: bool | None = None
    service_tier: str | None = None
    response_format: ResponseFormat | None = None


class ChatCompletionBody(GenerationBody):
    """``POST /v1/chat/completions``."""

    messages: Messages
    max_completion_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    tools: ToolList | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    functions: Items[object] | None = None
    function_call: object = None
    modalities: Items[str] | None = None
    audio: object = None
    prediction: object = None
    reasoning_effort: str | None = None
    web_search_options: object = None


class CompletionBody(GenerationBody):
    """``POST /v1/completions``."""

    prompt: str | Items[str] | Items[TokenId] | Items[Items[TokenId]]
    suffix: str | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None

    def prompts(self) -> list[str | list[int]]:
        """Each prompt by itself: a text or token ids; a list of token ids is one prompt."""
        prompt = self.prompt
        if isinstance(prompt, str) or not prompt or isinstance(prompt[0], int):
            return [cast("str | list[int]", prompt)]
        return cast("list[str | list[int]]", prompt)


class TokenizeBody(Body):
    """``POST /tokenize``: a prompt or messages."""

    model: ModelName
    prompt: str | None = None
    messages: Messages | None = None
    tools: ToolList | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(Body):
    """``POST /detokenize``."""

    model: ModelName
    tokens: Items[TokenId]
