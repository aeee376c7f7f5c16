"""A model's tokenizer over the `tokenizers` package, whichever file its vocabulary came from."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer

from fleetward_engine.chat_template import ChatTemplate
from fleetward_engine.errors import ChatRefused
from fleetward_engine.tokenizer import ChatMessage

_MARK = "\ufdd0"
"""A noncharacter: stands for control-token text inside a message while the template is rendered."""


class ModelTokenizer:
    """Implements `Tokenizer`.

    In chats, text of a message that spells a guarded token stays text: nobody can forge another
    turn. In plain prompts control tokens are read, since the whole prompt is the caller's.

    Args:
        special: reads control tokens where a text spells them out; `plain` reads them as text.
        guarded: texts of the tokens that no message may write.
        token_bytes: what each id adds to the text; as many as there are ids.
        prefix: ids that go before every plain prompt.
        eos_token_ids: tokens that end a text.
        template: None where the model has no chat template.
    """

    def __init__(
        self,
        *,
        special: Tokenizer,
        plain: Tokenizer,
        guarded: Iterable[str],
        token_bytes: Sequence[bytes],
        prefix: Sequence[int],
        eos_token_ids: frozenset[int],
        template: ChatTemplate | None,
    ) -> None:
        # The package would keep the first 10,000 words that it met, of whichever tenant, for as
        # long as the process lives: out of a purge's reach, and faster for whoever guesses one.
        for tokenizer in (special, plain):
            tokenizer.model._resize_cache(0)  # noqa: SLF001 - it has no other way
        self._special = special
        self._plain = plain
        names = sorted(guarded, key=len, reverse=True)
        self._guard_pattern = re.compile("|".join(map(re.escape, [_MARK, *names])))
        self._bytes = token_bytes
        self._prefix = list(prefix)
        self._eos = eos_token_ids
        self._template = template

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return len(self._bytes)

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """End of text and, where the model names one, end of turn."""
        return self._eos

    def encode(self, text: str) -> list[int]:
        """Text to ids; control tokens spelled out are read as such."""
        return self._prefix + _ids(self._special, text)

    def encode_chat(self, messages: Sequence[ChatMessage]) -> list[int]:
        """See `Tokenizer.encode_chat`."""
        if self._template is None:
            raise ChatRefused("this model has no chat template: use the completions API")
        guarded, spelled = self._guard(messages)
        ids: list[int] = []
        for index, part in enumerate(self._template.render(guarded).split(_MARK)):
            if index % 2 == 0:
                ids += _ids(self._special, part)
            else:
                ids += _ids(self._plain, spelled[int(part)])
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token adds to the text; control tokens add none."""
        return self._bytes[token_id]

    def token_name(self, token_id: int) -> str:
        """See `Tokenizer.token_name`."""
        return self._special.id_to_token(token_id) or ""

    def _guard(self, messages: Sequence[ChatMessage]) -> tuple[list[ChatMessage], list[str]]:
        """Take guarded text out of the messages; it comes back as plain text."""
        spelled: list[str] = []

        def hide(match: re.Match[str]) -> str:
            spelled.append(match.group())
            return f"{_MARK}{len(spelled) - 1}{_MARK}"

        guarded = [
            {key: self._guard_pattern.sub(hide, value) for key, value in message.items()}
            for message in messages
        ]  # fmt: skip
        return list(guarded), spelled


def byte_level_bytes(token: str) -> bytes:
    """The bytes of a token of a byte-level vocabulary, which spells each byte as a character."""
    return bytes(_BYTE_OF[character] for character in token if character in _BYTE_OF)


def text_digest(text: str) -> str:
    """SHA-256 of a text's UTF-8 bytes as `sha256:<hex>`."""
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in for each byte: itself where printable, else 256 and up."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(256 + index): byte for index, byte in enumerate(hidden)}


_BYTE_OF = _byte_alphabet()
