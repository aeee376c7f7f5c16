"""A checkpoint's tokenizer, built with the `tokenizers` package from its tokenizer.json."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tokenizers import AddedToken, Tokenizer

from fleetward_engine.chat_template import ChatTemplate
from fleetward_engine.errors import ModelUnavailable, one_line
from fleetward_engine.hf.json_file import JsonObject
from fleetward_engine.hf.token_bytes import read_token_bytes
from fleetward_engine.hf.tokenizer_files import TokenizerFiles
from fleetward_engine.model_tokenizer import ModelTokenizer

_SAMPLE = "a"
"""A text by which to see what goes around any."""


class HfTokenizer(ModelTokenizer):
    """BPE with the checkpoint's own normaliser, pre-tokeniser and control tokens.

    No chat message may write special tokens, nor added ones that are marks of the chat template.

    Args:
        vocab_size: the model's; ids that the tokenizer doesn't know add nothing to a text.
        eos_token_ids: those that the model's own files name; the settings' `eos_token` joins them.

    Raises:
        ModelUnavailable: tokenizer.json is damaged.
        ModelUnsupported: a feature there is no code for; names file and field.
    """

    def __init__(
        self, files: TokenizerFiles, *, vocab_size: int, eos_token_ids: frozenset[int]
    ) -> None:
        definition, names = files.definition, files.named_tokens
        special = _parse(definition, {})
        _check(definition, special, vocab_size)
        guarded = _guarded(special, files.chat_template)
        eos = special.token_to_id(names["eos_token"]) if "eos_token" in names else None
        template = files.chat_template
        super().__init__(
            special=special,
            plain=_plain(definition, guarded),
            guarded=guarded,
            token_bytes=_token_bytes(definition, special, vocab_size),
            prefix=_prefix(files, special),
            eos_token_ids=eos_token_ids | ({eos} if eos is not None else frozenset()),
            template=None if template is None else ChatTemplate(template, names),
        )


def _parse(definition: JsonObject, changes: Mapping[str, object]) -> Tokenizer:
    """Build it; what would cut or pad a prompt is left out."""
    values = {**definition.values, "truncation": None, "padding": None, **changes}
    try:
        return Tokenizer.from_str(json.dumps(values))
    except (KeyboardInterrupt, SystemExit):
        raise
    # A panic of the package is no Exception.
    except BaseException as fault:
        raise ModelUnavailable(
            f"{definition.path} can't be read as a tokenizer, fetch it again: {one_line(fault)}"
        ) from fault


def _check(definition: JsonObject, special: Tokenizer, vocab_size: int) -> None:
    model = definition.section("model")
    kind = "nothing" if model is None else model.text("type", default="BPE")
    if kind != "BPE":
        definition.refuse("model.type", f"{kind[:40]!r} has no code here: only 'BPE'")
    highest = max(special.get_vocab().values(), default=-1)
    if not 0 <= highest < vocab_size:
        definition.refuse(
            "model.vocab", f"goes up to token id {highest}, but the model's up to {vocab_size - 1}"
        )


def _guarded(special: Tokenizer, template: str | None) -> dict[str, int]:
    """Tokens that structure a prompt, by their texts.

    Some checkpoints don't call their turn marks special, so those are found in the template. White
    space and words that stand there too are no marks.
    """
    return {
        token.content: index
        for index, token in special.get_added_tokens_decoder().items()
        if token.special or (_is_mark(token) and token.content in (template or ""))
    }


def _is_mark(token: AddedToken) -> bool:
    return not token.content.isspace() and not token.content.isalnum()


def _plain(definition: JsonObject, guarded: Mapping[str, int]) -> Tokenizer:
    """The tokenizer that takes guarded texts for ordinary ones."""
    kept = [
        token
        for token in definition.items("added_tokens")
        if isinstance(token, dict) and token.get("content") not in guarded
    ]
    plain = _parse(definition, {"added_tokens": kept, "post_processor": None})
    for text in guarded:
        if set(plain.encode(text).ids) & set(guarded.values()):
            definition.refuse(
                "added_tokens", f"holds {text[:40]!r}, which any text could write by chance"
            )
    return plain


def _token_bytes(definition: JsonObject, special: Tokenizer, vocab_size: int) -> list[bytes]:
    decode = read_token_bytes(definition)
    added = special.get_added_tokens_decoder()

    def bytes_of(index: int) -> bytes:
        if index in added:
            return b"" if added[index].special else added[index].content.encode()
        token = special.id_to_token(index)
        return b"" if token is None else decode(token)

    return [bytes_of(index) for index in range(vocab_size)]


def _prefix(files: TokenizerFiles, special: Tokenizer) -> list[int]:
    """What goes before a plain prompt: as the post-processor does it, unless the settings say."""
    bare: list[int] = special.encode(_SAMPLE, add_special_tokens=False).ids
    whole: list[int] = special.encode(_SAMPLE).ids
    prefix = whole[: len(whole) - len(bare)]
    if prefix + bare != whole or len(prefix) > 1:
        files.definition.refuse(
            "post_processor", "adds more than one token before a text: there is no code for that"
        )
    if files.settings.get("add_bos_token") is None:
        return prefix
    if not files.settings.flag("add_bos_token"):
        return []
    bos = special.token_to_id(files.named_tokens.get("bos_token", ""))
    if bos is None:
        files.settings.refuse(
            "add_bos_token", "is true, but bos_token is no token of the tokenizer"
        )
    return [bos]
