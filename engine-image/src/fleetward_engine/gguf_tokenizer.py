"""The tokenizer that a GGUF file carries, built with the `tokenizers` package."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from fleetward_engine.chat_template import ChatTemplate
from fleetward_engine.errors import ChatRefused, ModelUnsupported
from fleetward_engine.gguf_file import GgufFile
from fleetward_engine.tokenizer import ChatMessage

_PRE_TOKENIZERS = ("smollm", "gpt-2", "default")
_CONTROL, _USER_DEFINED = 3, 4
_TOKENIZER_KEYS = ("model", "pre", "tokens", "token_type", "merges", "add_bos_token")
_MARK = "\ufdd0"
"""A noncharacter: stands for control-token text inside a message while the template is rendered."""


class GgufTokenizer:
    """Byte-level BPE with the model's control tokens. Implements `Tokenizer`.

    In chats, text of a message that spells a control token stays text: nobody can forge another
    turn. In plain prompts control tokens are read, since the whole prompt is the caller's.

    Raises:
        ModelUnsupported: another kind of tokenizer; names it.
    """

    def __init__(self, file: GgufFile) -> None:
        kind, pre = file.text("tokenizer.ggml.model"), file.text("tokenizer.ggml.pre", "default")
        if kind != "gpt2":
            raise ModelUnsupported(f"tokenizer model {kind!r} has no code here: only 'gpt2'")
        self._tokens = file.strings("tokenizer.ggml.tokens")
        types = file.integers("tokenizer.ggml.token_type")
        self._control = {i: t for i, t in enumerate(self._tokens) if types[i] == _CONTROL}
        added = [i for i, kind in enumerate(types) if kind in {_CONTROL, _USER_DEFINED}]
        vocab = {token: index for index, token in enumerate(self._tokens)}
        pairs = (merge.partition(" ") for merge in file.strings("tokenizer.ggml.merges"))
        merges = [(left, right) for left, _, right in pairs]
        self._plain = _bpe(vocab, merges, pre)
        self._special = _bpe(vocab, merges, pre)
        self._special.add_special_tokens(
            [AddedToken(self._tokens[i], normalized=False, special=True) for i in added]
        )
        self._bytes = [self._bytes_of(index, set(added)) for index in range(len(self._tokens))]
        self._bos, self._eos = _special_ids(file)
        self._add_bos = file.flag("tokenizer.ggml.add_bos_token", default=False)
        self._template = self._chat_template(file)

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return len(self._tokens)

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """End of text and, where the file names one, end of turn."""
        return self._eos

    def encode(self, text: str) -> list[int]:
        """Text to ids; control tokens spelled out are read as such."""
        start = [self._bos] if self._add_bos and self._bos is not None else []
        ids: list[int] = self._special.encode(text, add_special_tokens=False).ids
        return start + ids

    def encode_chat(self, messages: Sequence[ChatMessage]) -> list[int]:
        """See `Tokenizer.encode_chat`."""
        if self._template is None:
            raise ChatRefused("this model has no chat template: use the completions API")
        guarded, spelled = self._guard(messages)
        ids: list[int] = []
        for index, part in enumerate(self._template.render(guarded).split(_MARK)):
            if index % 2 == 0:
                ids += self._special.encode(part, add_special_tokens=False).ids
            else:
                ids += self._plain.encode(spelled[int(part)], add_special_tokens=False).ids
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token adds to the text; control tokens add none."""
        return self._bytes[token_id]

    def _guard(self, messages: Sequence[ChatMessage]) -> tuple[list[ChatMessage], list[str]]:
        """Take control-token text out of the messages; it comes back as plain text."""
        names = sorted(self._control.values(), key=len, reverse=True)
        pattern = re.compile("|".join(map(re.escape, [_MARK, *names])))
        spelled: list[str] = []

        def hide(match: re.Match[str]) -> str:
            spelled.append(match.group())
            return f"{_MARK}{len(spelled) - 1}{_MARK}"

        guarded = [
            {key: pattern.sub(hide, value) for key, value in message.items()}
            for message in messages
        ]  # fmt: skip
        return list(guarded), spelled

    def _bytes_of(self, index: int, added: set[int]) -> bytes:
        token = self._tokens[index]
        if index in self._control:
            return b""
        if index in added:
            return token.encode()
        return bytes(_BYTE_OF[character] for character in token if character in _BYTE_OF)

    def _chat_template(self, file: GgufFile) -> ChatTemplate | None:
        source = file.get("tokenizer.chat_template")
        if not isinstance(source, str):
            return None
        ids = {"bos_token": self._bos, "eos_token": min(self._eos, default=None)}
        names = {name: self._tokens[i] for name, i in ids.items() if i is not None}
        return ChatTemplate(source, names)


def tokenizer_digest(file: GgufFile) -> str:
    """SHA-256 over everything in the file that turns text into token ids."""
    values = {key: file.get(f"tokenizer.ggml.{key}") for key in _TOKENIZER_KEYS}
    return _digest(json.dumps(values, sort_keys=True, ensure_ascii=False))


def chat_template_digest(file: GgufFile) -> str:
    """SHA-256 of the chat template's text; of the empty text where there is none."""
    return _digest(str(file.get("tokenizer.chat_template") or ""))


def _bpe(vocab: dict[str, int], merges: list[tuple[str, str]], pre: str) -> Tokenizer:
    strange = next((left + right for left, right in merges if left + right not in vocab), None)
    if strange is not None:
        raise ModelUnsupported(f"the tokenizer merges into {strange!r}, which is no token of it")
    if pre not in _PRE_TOKENIZERS:
        known = ", ".join(_PRE_TOKENIZERS)
        raise ModelUnsupported(f"pre-tokenizer {pre!r} has no code here: only {known}")
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, fuse_unk=False))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if pre == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    else:
        tokenizer.pre_tokenizer = byte_level
    return tokenizer


def _special_ids(file: GgufFile) -> tuple[int | None, frozenset[int]]:
    bos = file.get("tokenizer.ggml.bos_token_id")
    ends = (file.get(f"tokenizer.ggml.{key}") for key in ("eos_token_id", "eot_token_id"))
    return (
        bos if isinstance(bos, int) else None,
        frozenset(end for end in ends if isinstance(end, int)),
    )


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in for each byte: itself where printable, else 256 and up."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(256 + index): byte for index, byte in enumerate(hidden)}


def _digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


_BYTE_OF = _byte_alphabet()
