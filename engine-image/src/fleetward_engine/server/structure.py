"""What an answer must follow: the grammar of `response_format` or `tools`, compiled on a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from fleetward_api.openai import CODE_INVALID_VALUE
from fleetward_engine.errors import GrammarRefused
from fleetward_engine.grammar import Grammar, GrammarCompiler
from fleetward_engine.server.conversation import offered_tools
from fleetward_engine.server.errors import ApiError
from fleetward_engine.server.openai_models import ChatCompletionBody, CompletionBody
from fleetward_engine.server.openai_tools import NamedTool, ResponseFormat
from fleetward_engine.tokenizer import Tokenizer
from fleetward_engine.tool_dialect import call_grammar

_ANY_OBJECT: dict[str, object] = {"type": "object"}


class GrammarDesk:
    """Compiles grammars one after another on its own thread; the first waits for the compiler.

    Nothing is kept between calls: a schema is its caller's data.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._compiler: GrammarCompiler | None = None
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammar")

    async def grammar_of(self, body: ChatCompletionBody | CompletionBody) -> Grammar | None:
        """The grammar of a checked body; None where any text will do.

        Raises:
            ApiError: 400 that says what of the schema can't be followed.
        """
        if isinstance(body, ChatCompletionBody) and (tools := offered_tools(body)):
            forced = body.tool_choice == "required" or isinstance(body.tool_choice, NamedTool)
            several = body.parallel_tool_calls is not False and not isinstance(
                body.tool_choice, NamedTool
            )
            return await self._compiled(
                "tools",
                lambda compiler: compiler.lark(call_grammar(tools, forced=forced, several=several)),
            )
        format_ = body.response_format
        if format_ is None or format_.type == "text":
            return None
        schema, lenient = _schema(format_)
        return await self._compiled(
            "response_format", lambda compiler: compiler.json_schema(schema, lenient=lenient)
        )

    def close(self) -> None:
        """Stop the worker thread."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    async def _compiled(
        self, param: str, compile_: Callable[[GrammarCompiler], Grammar]
    ) -> Grammar:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._worker, self._compile, compile_)
        except GrammarRefused as fault:
            message = f"{param}: the schema can't be followed: {fault}."
            raise ApiError(400, message, param=param, code=CODE_INVALID_VALUE) from fault

    def _compile(self, compile_: Callable[[GrammarCompiler], Grammar]) -> Grammar:
        if self._compiler is None:
            self._compiler = GrammarCompiler(self._tokenizer)
        return compile_(self._compiler)


def _schema(format_: ResponseFormat) -> tuple[dict[str, object], bool]:
    """The schema and whether what can't be enforced of it may pass."""
    named = format_.json_schema
    if format_.type == "json_object" or named is None or named.schema_ is None:
        return _ANY_OBJECT, False
    return named.schema_, not named.strict
