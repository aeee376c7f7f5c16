"""What the engine needs of a tokenizer, and the byte tokenizer of the simulated runner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

ChatMessage = Mapping[str, str]


class Tokenizer(Protocol):
    """Text to token ids and back to bytes."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Tokens that end a text."""

    def encode(self, text: str) -> list[int]:
        """Plain text to token ids, with the beginning-of-text token where the model wants one."""

    def encode_chat(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Messages with `role` and `content` through the chat template, up to the answer's start.

        Raises:
            ChatRefused: the template refuses them, or the model has none.
        """

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token adds to the text; control tokens add none."""

    def token_name(self, token_id: int) -> str:
        """What the vocabulary calls a token: how a control token is spelled."""


class ByteTokenizer:
    """One token per UTF-8 byte, then a token for each chat mark: needs no model."""

    TURN, END = 256, 257

    @property
    def vocab_size(self) -> int:
        """The 256 bytes and the two marks."""
        return 258

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """The end-of-turn mark."""
        return frozenset({self.END})

    def encode(self, text: str) -> list[int]:
        """The text's bytes."""
        return list(text.encode("utf-8", "replace"))

    def encode_chat(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Each message as turn mark, role, line feed, content, end mark; then the answer's turn."""
        tokens: list[int] = []
        for message in messages:
            text = f"{message['role']}\n{message['content']}"
            tokens += [self.TURN, *self.encode(text), self.END]
        return [*tokens, self.TURN, *self.encode("assistant\n")]

    def token_bytes(self, token_id: int) -> bytes:
        """The byte itself; marks add nothing."""
        return bytes([token_id]) if token_id < self.TURN else b""

    def token_name(self, token_id: int) -> str:
        """Marks have names; a byte is called what it is."""
        names = {self.TURN: "<|turn|>", self.END: "<|end|>"}
        return names.get(token_id) or f"<0x{token_id:02X}>"
