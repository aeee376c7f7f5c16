"""Grammars that a text must follow: which tokens may come next, by the llguidance library.

A grammar is compiled once a call; each choice follows it from a state of its own. The mask of one
step costs about 10 µs; why this library: docs/designs/structured-output.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from fleetward_engine.errors import GrammarFailed, GrammarRefused
from fleetward_engine.tokenizer import Tokenizer

MAX_SOURCE: Final = 32_768
"""Characters of a grammar: compiling a schema of 10 times that takes seconds."""

_OPTIONS: Final = {
    "whitespace_flexible": False,
    "item_separator": ",[ ]?",
    "key_separator": ":[ ]?",
}
"""At most one blank after a comma or colon: a model can't fill its answer with white space."""


class GrammarState:
    """How far one text has come in its grammar."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    @property
    def finished(self) -> bool:
        """Whether the text is whole and can't go on."""
        return bool(self._matcher.is_stopped())

    def allowed(self) -> bytes:
        """The tokens that may come next: bit `i % 8` of byte `i // 8` is token `i`.

        Raises:
            GrammarFailed: the grammar grew too complex for this text, or leaves no token.
        """
        mask: bytes = self._matcher.compute_bitmask()
        self._check()
        if mask.count(0) == len(mask):
            raise GrammarFailed("the grammar allows no further token here")
        return mask

    def advance(self, token_id: int) -> None:
        """Take the chosen token.

        Raises:
            GrammarFailed: see `allowed`.
        """
        self._matcher.consume_token(token_id)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise GrammarFailed(_first_line(self._matcher.get_error()))


class Grammar:
    """A compiled grammar; immutable."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    def start(self) -> GrammarState:
        """The state of a text that has not begun."""
        return GrammarState(self._matcher.deep_copy())


class GrammarCompiler:
    """Compiles grammars over one tokenizer. Releases the interpreter while it works.

    Raises:
        GrammarRefused: a model that names no token which ends a text can't be told to stop.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        if not tokenizer.eos_token_ids:
            raise GrammarRefused("this model names no token that ends a text")
        self._vocabulary = LLTokenizer(
            TokenizerWrapper(_Vocabulary(tokenizer)),
            n_vocab=tokenizer.vocab_size,
            eos_token=sorted(tokenizer.eos_token_ids),
        )

    def json_schema(self, schema: Mapping[str, object], *, lenient: bool = False) -> Grammar:
        """The JSON texts that a schema accepts.

        Args:
            schema: a JSON schema.
            lenient: leave out what of the schema has no code here, instead of refusing it.

        Raises:
            GrammarRefused: the schema is none, is too large, or nothing can satisfy it.
        """
        return self._compile(f"start: {json_rule(schema, lenient=lenient)}")

    def lark(self, source: str) -> Grammar:
        """What a grammar in llguidance's dialect of Lark accepts. Raises `GrammarRefused`."""
        return self._compile(source)

    def _compile(self, source: str) -> Grammar:
        if len(source) > MAX_SOURCE:
            raise GrammarRefused(f"it is longer than {MAX_SOURCE} characters of JSON")
        try:
            grammar = LLMatcher.grammar_from_lark(source)
        except ValueError as fault:
            raise GrammarRefused(_first_line(str(fault))) from fault
        matcher = LLMatcher(self._vocabulary, grammar, log_level=0)
        if matcher.is_error():
            raise GrammarRefused(_first_line(matcher.get_error()))
        compiled = Grammar(matcher)
        try:
            # Some grammars show only here that nothing satisfies them, or that they explode.
            compiled.start().allowed()
        except GrammarFailed as fault:
            raise GrammarRefused(str(fault)) from fault
        return compiled


def json_rule(schema: Mapping[str, object], *, lenient: bool) -> str:
    """A schema as the right side of a Lark rule; options of the library in it have no effect.

    Raises:
        GrammarRefused: nested too deeply.
    """
    options: dict[str, object] = {**_OPTIONS, "lenient": lenient}
    try:
        return "%json " + json.dumps({**schema, "x-guidance": options}, ensure_ascii=True)
    except RecursionError:
        raise GrammarRefused("it is nested too deeply") from None


class _Vocabulary:
    """The tokenizer as llguidance reads it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        ids = range(tokenizer.vocab_size)
        self.special_token_ids = [token for token in ids if not tokenizer.token_bytes(token)]
        self.tokens = [
            tokenizer.token_bytes(token) or tokenizer.token_name(token).encode() for token in ids
        ]
        self.eos_token_id = min(tokenizer.eos_token_ids)
        self.bos_token_id = None
        self._tokenizer = tokenizer

    def __call__(self, text: str) -> list[int]:
        # Without the token that begins a text: what a grammar forces lies in its middle.
        ids = self._tokenizer.encode(text)
        return [token for token in ids if self._tokenizer.token_bytes(token)]


def _first_line(words: str) -> str:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return lines[0] if lines else "it can't be compiled"
