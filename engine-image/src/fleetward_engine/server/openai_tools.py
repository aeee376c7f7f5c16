"""The parts of a chat body that shape its answer: `response_format`, `tools`, calls made before."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fleetward_engine.server.openai_base import Body, Items

MAX_TOOLS = 128
MAX_DESCRIPTION = 8192
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Schema = dict[str, object]


class JsonSchemaFormat(Body):
    """``response_format.json_schema``: without a schema, any JSON object."""

    name: Name
    description: Annotated[str, Field(max_length=MAX_DESCRIPTION)] | None = None
    schema_: Schema | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Body):
    """``response_format``."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: JsonSchemaFormat | None = None


class FunctionTool(Body):
    """A function that the model may call."""

    name: Name
    description: Annotated[str, Field(max_length=MAX_DESCRIPTION)] | None = None
    parameters: Schema | None = None
    strict: bool | None = None


class ToolItem(Body):
    """One of ``tools``; functions are the only kind."""

    type: Literal["function"]
    function: FunctionTool


class FunctionName(Body):
    """Which function."""

    name: Name


class NamedTool(Body):
    """``tool_choice``: this function and no other."""

    type: Literal["function"]
    function: FunctionName


class CalledFunction(Body):
    """Name and arguments (JSON text) of a call made before."""

    name: Name
    arguments: str


class CalledTool(Body):
    """A call of an earlier assistant message."""

    id: Annotated[str, Field(min_length=1, max_length=256)]
    type: Literal["function"]
    function: CalledFunction


ToolList = Annotated[Items[ToolItem], Field(max_length=MAX_TOOLS)]
ToolChoice = Literal["none", "auto", "required"] | NamedTool
CalledTools = Annotated[Items[CalledTool], Field(min_length=1, max_length=MAX_TOOLS)]
