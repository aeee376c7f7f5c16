"""The files of a checkpoint that turn text into tokens: read, not yet put to use."""

from __future__ import annotations

import json
from dataclasses import dataclass

from fleetward_engine.errors import ModelUnavailable
from fleetward_engine.file_digest import file_digest
from fleetward_engine.hf.checkpoint import Checkpoint
from fleetward_engine.hf.json_file import JsonObject, read_object
from fleetward_engine.model_tokenizer import text_digest

_MAX_TOKENIZER_BYTES = 128 << 20
_MAX_SETTINGS_BYTES = 16 << 20
_MAX_TEMPLATE_BYTES = 1 << 20
_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")
_ADVICE = (
    "the only form of a tokenizer that is read: write it with transformers' save_pretrained, "
    "which makes it of a tokenizer.model too"
)


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """What was read.

    `definition` is tokenizer.json, `settings` tokenizer_config.json (empty where there is none),
    `chat_template` the template's text or None.
    """

    definition: JsonObject
    settings: JsonObject
    chat_template: str | None

    @property
    def named_tokens(self) -> dict[str, str]:
        """Tokens with a part to play, such as `bos_token`, that the settings name."""
        values = {name: self.settings.get(name) for name in _NAMED}
        texts = {n: v.get("content") if isinstance(v, dict) else v for n, v in values.items()}
        return {name: text for name, text in texts.items() if isinstance(text, str)}

    @property
    def tokenizer_digest(self) -> str:
        """SHA-256 over what turns text into token ids."""
        bos = [self.settings.get("add_bos_token"), self.named_tokens.get("bos_token")]
        return text_digest(json.dumps([file_digest(self.definition.path), *bos]))

    @property
    def chat_template_digest(self) -> str:
        """SHA-256 of the chat template's text; of the empty text where there is none."""
        return text_digest(self.chat_template or "")


def read_tokenizer_files(checkpoint: Checkpoint) -> TokenizerFiles:
    """Read them.

    Raises:
        ModelUnavailable: one is missing or can't be read as what it should be.
        ModelUnsupported: the chat template is no text.
    """
    path = checkpoint.required("tokenizer.json", advice=_ADVICE)
    settings = checkpoint.optional_object("tokenizer_config.json", max_bytes=_MAX_SETTINGS_BYTES)
    return TokenizerFiles(
        read_object(path, max_bytes=_MAX_TOKENIZER_BYTES),
        settings,
        _chat_template(checkpoint, settings),
    )


def _chat_template(checkpoint: Checkpoint, settings: JsonObject) -> str | None:
    """A file of its own is the newer place, and goes before the settings."""
    path = checkpoint.optional("chat_template.jinja")
    if path is not None:
        with path.open("rb") as file:
            raw = file.read(_MAX_TEMPLATE_BYTES + 1)
        if len(raw) > _MAX_TEMPLATE_BYTES:
            raise ModelUnavailable(f"{path} is longer than {_MAX_TEMPLATE_BYTES} bytes")
        return raw.decode("utf-8")
    if settings.get("chat_template") is None:
        settings = checkpoint.optional_object("chat_template.json")
    if settings.get("chat_template") is None:
        return None
    if isinstance(settings.get("chat_template"), list):
        return _named_default(settings)
    return settings.text("chat_template")


def _named_default(settings: JsonObject) -> str | None:
    """The template called `default` of a list of named ones."""
    for item in settings.items("chat_template"):
        template = JsonObject(
            settings.path, item if isinstance(item, dict) else {}, "chat_template."
        )
        if template.text("name") == "default":
            return template.text("template")
    return None
