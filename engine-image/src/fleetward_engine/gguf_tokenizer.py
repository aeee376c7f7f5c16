"""The tokenizer that a GGUF file carries, built with the `tokenizers` package."""

from __future__ import annotations

import json

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from fleetward_engine.chat_template import ChatTemplate
from fleetward_engine.errors import ModelUnsupported
from fleetward_engine.gguf_file import GgufFile
from fleetward_engine.model_tokenizer import ModelTokenizer, byte_level_bytes, text_digest

_PRE_TOKENIZERS = ("smollm", "gpt-2", "default")
_CONTROL, _USER_DEFINED = 3, 4
_TOKENIZER_KEYS = ("model", "pre", "tokens", "token_type", "merges", "add_bos_token")


class GgufTokenizer(ModelTokenizer):
    """Byte-level BPE with the model's control tokens.

    Raises:
        ModelUnsupported: another kind of tokenizer; names it.
    """

    def __init__(self, file: GgufFile) -> None:
        kind, pre = file.text("tokenizer.ggml.model"), file.text("tokenizer.ggml.pre", "default")
        if kind != "gpt2":
            raise ModelUnsupported(f"tokenizer model {kind!r} has no code here: only 'gpt2'")
        tokens = file.strings("tokenizer.ggml.tokens")
        types = dict(enumerate(file.integers("tokenizer.ggml.token_type")))
        added = [i for i, kind in types.items() if kind in {_CONTROL, _USER_DEFINED}]
        vocab = {token: index for index, token in enumerate(tokens)}
        pairs = (merge.partition(" ") for merge in file.strings("tokenizer.ggml.merges"))
        merges = [(left, right) for left, _, right in pairs]
        special = _bpe(vocab, merges, pre)
        special.add_special_tokens(
            [AddedToken(tokens[i], normalized=False, special=True) for i in added]
        )
        bos, eos = _special_ids(file)
        add_bos = file.flag("tokenizer.ggml.add_bos_token", default=False)
        super().__init__(
            special=special,
            plain=_bpe(vocab, merges, pre),
            guarded=(tokens[i] for i in added if types[i] == _CONTROL),
            token_bytes=[_bytes_of(token, types[i]) for i, token in enumerate(tokens)],
            prefix=[bos] if add_bos and bos is not None else [],
            eos_token_ids=eos,
            template=_chat_template(file, tokens),
        )


def tokenizer_digest(file: GgufFile) -> str:
    """SHA-256 over everything in the file that turns text into token ids."""
    values = {key: file.get(f"tokenizer.ggml.{key}") for key in _TOKENIZER_KEYS}
    return text_digest(json.dumps(values, sort_keys=True, ensure_ascii=False))


def chat_template_digest(file: GgufFile) -> str:
    """SHA-256 of the chat template's text; of the empty text where there is none."""
    return text_digest(str(file.get("tokenizer.chat_template") or ""))


def _bytes_of(token: str, kind: int) -> bytes:
    if kind == _CONTROL:
        return b""
    return token.encode() if kind == _USER_DEFINED else byte_level_bytes(token)


def _chat_template(file: GgufFile, tokens: list[str]) -> ChatTemplate | None:
    source = file.get("tokenizer.chat_template")
    if not isinstance(source, str):
        return None
    bos, eos = _special_ids(file)
    ids = {"bos_token": bos, "eos_token": min(eos, default=None)}
    return ChatTemplate(source, {name: tokens[i] for name, i in ids.items() if i is not None})


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
