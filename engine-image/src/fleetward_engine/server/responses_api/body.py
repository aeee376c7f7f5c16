"""The body of `POST /v1/responses`, checked field by field as in `openai_models`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fleetward_engine.server.openai_base import Body, Items
from fleetward_engine.server.openai_models import (
    MAX_TOKENS,
    MAX_USER_LENGTH,
    ModelName,
    PromptCacheOptions,
)
from fleetward_engine.server.openai_tools import (
    MAX_DESCRIPTION,
    MAX_TOOLS,
    Name,
    Schema,
)


class Part(Body):
    """One part of an item's content; only text is understood."""

    type: str
    text: str | None = None


class Item(Body):
    """One item of ``input``: a message, a call made before, or what a call came back with."""

    type: str = "message"
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: str | Items[Part] | None = None
    call_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    name: Name | None = None
    arguments: str | None = None
    output: str | Items[Part] | None = None


class Format(Body):
    """``text.format``; a schema's fields stand beside its type."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: Name | None = None
    description: Annotated[str, Field(max_length=MAX_DESCRIPTION)] | None = None
    schema_: Schema | None = Field(default=None, alias="schema")
    strict: bool | None = None


class TextOptions(Body):
    """``text``."""

    format: Format | None = None
    verbosity: str | None = None


class FlatTool(Body):
    """One of ``tools``: a function whose fields stand beside its type."""

    type: Literal["function"]
    name: Name
    description: Annotated[str, Field(max_length=MAX_DESCRIPTION)] | None = None
    parameters: Schema | None = None
    strict: bool | None = None


class FlatChoice(Body):
    """``tool_choice``: this function and no other."""

    type: Literal["function"]
    name: Name


class ResponsesBody(Body):
    """``POST /v1/responses``."""

    model: ModelName
    input: str | Annotated[Items[Item], Field(min_length=1, max_length=4096)]
    instructions: str | None = None
    max_output_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    stream: bool | None = None
    text: TextOptions | None = None
    tools: Annotated[Items[FlatTool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | FlatChoice | None = None
    parallel_tool_calls: bool | None = None
    metadata: dict[str, object] | None = None
    user: Annotated[str, Field(max_length=MAX_USER_LENGTH)] | None = None
    safety_identifier: Annotated[str, Field(max_length=MAX_USER_LENGTH)] | None = None
    service_tier: str | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    prompt_cache_retention: Annotated[str, Field(max_length=64)] | None = None
    store: bool | None = None
    truncation: str | None = None
    include: Items[object] | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: object = None
    prompt: object = None
    reasoning: object = None
    max_tool_calls: int | None = None
    top_logprobs: int | None = None
