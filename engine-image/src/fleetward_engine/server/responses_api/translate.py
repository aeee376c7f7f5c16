"""From a responses body to the chat body that asks the same."""

from __future__ import annotations

from fleetward_api.openai import CODE_INVALID_VALUE
from fleetward_engine.server.errors import ApiError, refused
from fleetward_engine.server.openai_models import ChatCompletionBody, ContentPart, Message
from fleetward_engine.server.openai_tools import (
    CalledFunction,
    CalledTool,
    FunctionName,
    FunctionTool,
    JsonSchemaFormat,
    NamedTool,
    ResponseFormat,
    ToolItem,
)
from fleetward_engine.server.responses_api.body import (
    FlatChoice,
    FlatTool,
    Format,
    Item,
    Part,
    ResponsesBody,
)

_TEXT_PARTS = frozenset({"input_text", "output_text", "text"})
_STATEFUL = ("previous_response_id", "conversation", "prompt", "background", "include")
_NOT_DONE = ("reasoning", "max_tool_calls", "top_logprobs")
_RENAMED = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "response_format": "text.format",
}


def as_chat(body: ResponsesBody) -> ChatCompletionBody:
    """The chat that asks the same.

    Raises:
        ApiError: 400 that names what would need a store, or is not done here.
    """
    _check(body)
    items = body.input
    if isinstance(items, str):
        items = [Item(role="user", content=items)]
    messages = [] if body.instructions is None else [_system(body.instructions)]
    calls: set[str] = set()
    messages += [_message(index, item, calls) for index, item in enumerate(items)]
    choice = body.tool_choice
    return ChatCompletionBody(
        model=body.model,
        messages=messages,
        stream=body.stream,
        max_completion_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        tools=[_tool(tool) for tool in body.tools or ()],
        tool_choice=NamedTool(type="function", function=FunctionName(name=choice.name))
        if isinstance(choice, FlatChoice)
        else choice,
        parallel_tool_calls=body.parallel_tool_calls,
        response_format=_format(body.text.format if body.text else None),
        metadata=body.metadata,
        prompt_cache_options=body.prompt_cache_options,
        prompt_cache_retention=body.prompt_cache_retention,
        service_tier=body.service_tier,
    )


def renamed(error: ApiError) -> ApiError:
    """The same refusal with the parameter's name in this API."""
    param = error.param or ""
    head, dot, rest = param.partition(".")
    head, bracket, number = head.partition("[")
    if head in _RENAMED and not (bracket or dot):
        error.param = _RENAMED[head] + bracket + number + dot + rest
    return error


def _check(body: ResponsesBody) -> None:
    if body.store:
        raise refused("store", "Responses are not stored: set store to false.")
    for name in _STATEFUL:
        if getattr(body, name):
            raise refused(name, f"{name} is not supported: responses are not stored.")
    for name in _NOT_DONE:
        if getattr(body, name) is not None:
            raise refused(name, f"{name} is not supported by this engine.")
    if body.truncation not in (None, "disabled"):
        raise refused("truncation", 'Only truncation "disabled" is supported.')
    if body.text and body.text.format and body.text.format.type == "json_schema":
        for name, value in (("name", body.text.format.name), ("schema", body.text.format.schema_)):
            if value is None:
                where = f"text.format.{name}"
                raise refused(where, f"{where} is missing.", code=CODE_INVALID_VALUE)


def _system(text: str) -> Message:
    return Message(role="system", content=text)


def _message(index: int, item: Item, calls: set[str]) -> Message:
    where = f"input[{index}]"
    if item.type == "message" and item.role is not None:
        return Message(role=item.role, content=_content(f"{where}.content", item.content))
    if item.type == "function_call":
        if item.call_id is None or item.name is None or item.arguments is None:
            message = f"{where}: a function_call has call_id, name and arguments."
            raise refused(where, message, code=CODE_INVALID_VALUE)
        calls.add(item.call_id)
        function = CalledFunction(name=item.name, arguments=item.arguments)
        call = CalledTool(id=item.call_id, type="function", function=function)
        return Message(role="assistant", tool_calls=[call])
    if item.type == "function_call_output":
        if item.call_id not in calls:
            message = f"{where}.call_id names no call of an item before it."
            raise refused(f"{where}.call_id", message, code=CODE_INVALID_VALUE)
        content = _content(f"{where}.output", item.output)
        return Message(role="tool", tool_call_id=item.call_id, content=content)
    message = f"{where}: only messages with a role, function_call and function_call_output."
    raise refused(where, message)


def _content(where: str, content: str | list[Part] | None) -> str | list[ContentPart]:
    if content is None:
        raise refused(where, f"{where} is missing.", code=CODE_INVALID_VALUE)
    if isinstance(content, str):
        return content
    for number, part in enumerate(content):
        if part.type not in _TEXT_PARTS or part.text is None:
            param = f"{where}[{number}]"
            raise refused(param, f"{param}: only parts of text are supported.")
    return [ContentPart(type="text", text=part.text) for part in content]


def _tool(tool: FlatTool) -> ToolItem:
    fields = {name: getattr(tool, name) for name in FunctionTool.model_fields}
    return ToolItem(type="function", function=FunctionTool(**fields))


def _format(shape: Format | None) -> ResponseFormat | None:
    if shape is None:
        return None
    if shape.type != "json_schema" or shape.name is None:
        return ResponseFormat(type=shape.type)
    named = JsonSchemaFormat(name=shape.name, schema=shape.schema_, strict=shape.strict)
    return ResponseFormat(type="json_schema", json_schema=named)
