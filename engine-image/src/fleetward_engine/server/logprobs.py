"""Log-probabilities in the two shapes that OpenAI's clients read, in step with the text shown."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from fleetward_engine.outputs import RequestOutput, TokenLogprobs
from fleetward_engine.tokenizer import Tokenizer

Json = dict[str, object]

LOWEST = -9999.0
"""Stands for minus infinity, which JSON can't say; OpenAI's own answers use the same number."""


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """One token's log-probabilities and where its text starts, in characters of the answer.

    Tokens of an echoed prompt start before the answer, at an offset below 0. `foretold` is False
    for the first of them: nothing before it says how likely it was.
    """

    offset: int
    logprobs: TokenLogprobs
    foretold: bool = True


class TokenTrail:
    """Hands out a token's log-probabilities together with its first character.

    Text may be held back (half a character, the beginning of a stop string), and tokens of a stop
    string are never shown: what is handed out so far always covers the text so far and no more.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending: deque[TokenEntry] = deque()
        self._decoded = 0
        self._shown = 0

    def feed(self, output: RequestOutput) -> tuple[TokenEntry, ...]:
        """Take one step's output; returns the tokens that its text makes final."""
        for logprobs in output.logprobs:
            self._pending.append(TokenEntry(self._decoded, logprobs))
            data = self._tokenizer.token_bytes(logprobs.token_id)
            self._decoded += len(self._decoder.decode(data))
        self._shown += len(output.text_delta)
        # A text that was merely cut ends with all its tokens, also those without any character.
        everything = output.finish_reason == "length"
        ready: list[TokenEntry] = []
        while self._pending and (everything or self._pending[0].offset < self._shown):
            ready.append(self._pending.popleft())
        return tuple(ready)


class PromptTrail:
    """The entries of a prompt that its answer repeats.

    Args:
        token_ids: the prompt, at least one token. text: as the answer repeats it.
    """

    def __init__(self, tokenizer: Tokenizer, token_ids: Sequence[int], text: str) -> None:
        self.text = text
        self._tokenizer = tokenizer
        self._token_ids = token_ids

    def entries(self, logprobs: Sequence[TokenLogprobs]) -> tuple[TokenEntry, ...]:
        """An entry a token. `logprobs` are of all tokens but the first."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        first = TokenLogprobs(self._token_ids[0], 0.0, ())
        found: list[TokenEntry] = []
        place = 0
        for one in (first, *logprobs):
            # A tokenizer may spell a text in more characters than it has.
            offset = min(place, len(self.text)) - len(self.text)
            found.append(TokenEntry(offset, one, foretold=bool(found)))
            place += len(decoder.decode(self._tokenizer.token_bytes(one.token_id)))
        return tuple(found)


def chat_logprobs(entries: Sequence[TokenEntry], tokenizer: Tokenizer) -> Json:
    """The `logprobs` of a chat choice."""
    content = [
        {
            **_chat_token(entry.logprobs.token_id, entry.logprobs.logprob, tokenizer),
            "top_logprobs": [
                _chat_token(token_id, logprob, tokenizer)
                for token_id, logprob in entry.logprobs.top
            ],
        }
        for entry in entries
    ]
    return {"content": content, "refusal": None}


def text_logprobs(entries: Sequence[TokenEntry], tokenizer: Tokenizer, *, start: int) -> Json:
    """The `logprobs` of a plain completion; `start` is the length of an echoed prompt."""
    tops: list[Json | None] = []
    for entry in entries:
        pairs = [*entry.logprobs.top, (entry.logprobs.token_id, entry.logprobs.logprob)]
        told: Json = {_spelled(token_id, tokenizer): _finite(value) for token_id, value in pairs}
        tops.append(told if entry.foretold else None)
    return {
        "tokens": [_spelled(entry.logprobs.token_id, tokenizer) for entry in entries],
        "token_logprobs": [
            _finite(entry.logprobs.logprob) if entry.foretold else None for entry in entries
        ],
        "top_logprobs": tops,
        "text_offset": [start + entry.offset for entry in entries],
    }


def _chat_token(token_id: int, logprob: float, tokenizer: Tokenizer) -> Json:
    data = tokenizer.token_bytes(token_id)
    text = data.decode("utf-8", "replace") if data else tokenizer.token_name(token_id)
    return {"token": text, "logprob": _finite(logprob), "bytes": list(data)}


def _spelled(token_id: int, tokenizer: Tokenizer) -> str:
    """A token's text; part of a character as its bytes, so that two parts never read the same."""
    data = tokenizer.token_bytes(token_id)
    if not data:
        return tokenizer.token_name(token_id)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def _finite(logprob: float) -> float:
    return max(logprob, LOWEST)
