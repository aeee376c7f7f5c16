"""From a chat body to the messages that the model's template takes: roles with plain text."""

from __future__ import annotations

from fleetward_engine.server.openai_models import ChatCompletionBody, Message
from fleetward_engine.server.openai_tools import NamedTool
from fleetward_engine.tokenizer import ChatMessage
from fleetward_engine.tool_dialect import Tool, ToolCall, offer, result, written

_SYSTEM = frozenset({"system", "developer"})


def plain_messages(body: ChatCompletionBody) -> list[ChatMessage]:
    """The conversation; tools are told in its first, the system message."""
    names: dict[str, str] = {}
    messages: list[ChatMessage] = []
    for message in body.messages:
        for call in message.tool_calls or ():
            names[call.id] = call.function.name
        messages.append(_plain(message, names))
    if tools := offered_tools(body):
        told = offer(tools)
        if messages[0]["role"] in _SYSTEM:
            first = messages.pop(0)
            told = f"{first['content']}\n\n{told}"
        messages.insert(0, {"role": "system", "content": told})
    return messages


def offered_tools(body: ChatCompletionBody) -> list[Tool]:
    """The tools that may be called: all of them, the one that was chosen, or none."""
    choice = body.tool_choice
    if choice == "none":
        return []
    items = [item.function for item in body.tools or ()]
    if isinstance(choice, NamedTool):
        items = [item for item in items if item.name == choice.function.name]
    return [
        Tool(item.name, item.description or "", item.parameters, strict=bool(item.strict))
        for item in items
    ]


def _plain(message: Message, names: dict[str, str]) -> ChatMessage:
    content = message.content
    if isinstance(content, list):
        content = "".join(part.text or "" for part in content)
    content = content or ""
    if message.tool_calls:
        calls = [
            ToolCall(each.function.name, each.function.arguments) for each in message.tool_calls
        ]
        content += written(calls)
    if message.role == "tool":
        content = result(names.get(message.tool_call_id or "", ""), content)
    return {"role": message.role, "content": content}
