"""What an answer must follow: the grammar of `response_format` or `tools`, compiled on a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from fleetward_api.openai import CODE_INVALID_VALUE, CODE_RATE_LIMIT
from fleetward_engine.errors import GrammarRefused
from fleetward_engine.grammar import Grammar, GrammarCompiler, json_rule
from fleetward_engine.server.conversation import offered_tools
from fleetward_engine.server.errors import ApiError
from fleetward_engine.server.fair_turns import FairTurns, LineFull
from fleetward_engine.server.openai_models import ChatCompletionBody, CompletionBody
from fleetward_engine.server.openai_tools import NamedTool, ResponseFormat
from fleetward_engine.tokenizer import Tokenizer
from fleetward_engine.tool_dialect import Tool, call_grammar

MOST_WAITING = 64
"""Schemas of one tenant that may wait for the compiler. Each takes milliseconds; a hostile one, up
to the compiler's own limit."""

_ANY_OBJECT: dict[str, object] = {"type": "object"}


@dataclass(frozen=True, slots=True)
class _Asked:
    """The schema of a `response_format`, and whether what can't be enforced of it may pass."""

    schema: dict[str, object]
    lenient: bool


class GrammarDesk:
    """Compiles grammars one after another on its own thread, by turns between tenants.

    The first waits for the compiler. Nothing is kept between calls: a schema is its caller's data.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._compiler: GrammarCompiler | None = None
        self._turns = FairTurns(most_waiting=MOST_WAITING)
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammar")

    async def grammar_of(
        self, body: ChatCompletionBody | CompletionBody, *, tenant: str
    ) -> Grammar | None:
        """The grammar of a checked body; None where any text will do.

        Raises:
            ApiError: 400 that says what of the schema can't be followed, 429 where too many of this
                tenant's wait already.
        """
        asked = _asked(body.response_format)
        grammar = None
        if asked is not None:
            # By itself also beside tools, so that what is wrong with it is told as its own.
            grammar = await self._compiled(
                tenant,
                "response_format",
                lambda compiler: compiler.json_schema(asked.schema, lenient=asked.lenient),
            )
        if isinstance(body, ChatCompletionBody) and (tools := offered_tools(body)):
            grammar = await self._compiled(
                tenant, "tools", lambda compiler: compiler.lark(_calls(body, tools, asked))
            )
        return grammar

    def close(self) -> None:
        """Stop the worker thread."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    async def _compiled(
        self, tenant: str, param: str, compile_: Callable[[GrammarCompiler], Grammar]
    ) -> Grammar:
        loop = asyncio.get_running_loop()
        try:
            async with self._turns.turn(tenant):
                return await loop.run_in_executor(self._worker, self._compile, compile_)
        except LineFull as fault:
            message = f"{param}: {MOST_WAITING} schemas of yours wait to be read; try again later."
            headers = {"retry-after": "1"}
            raise ApiError(
                429, message, param=param, code=CODE_RATE_LIMIT, headers=headers
            ) from fault
        except GrammarRefused as fault:
            message = f"{param}: the schema can't be followed: {fault}."
            raise ApiError(400, message, param=param, code=CODE_INVALID_VALUE) from fault

    def _compile(self, compile_: Callable[[GrammarCompiler], Grammar]) -> Grammar:
        if self._compiler is None:
            self._compiler = GrammarCompiler(self._tokenizer)
        return compile_(self._compiler)


def _asked(format_: ResponseFormat | None) -> _Asked | None:
    if format_ is None or format_.type == "text":
        return None
    named = format_.json_schema
    if format_.type == "json_object" or named is None or named.schema_ is None:
        return _Asked(_ANY_OBJECT, lenient=False)
    return _Asked(named.schema_, lenient=not named.strict)


def _calls(body: ChatCompletionBody, tools: Sequence[Tool], asked: _Asked | None) -> str:
    named = isinstance(body.tool_choice, NamedTool)
    return call_grammar(
        tools,
        forced=named or body.tool_choice == "required",
        several=body.parallel_tool_calls is not False and not named,
        answer=None if asked is None else json_rule(asked.schema, lenient=asked.lenient),
    )
