"""What each token of a `tokenizer.json` adds to a text, in bytes, read from its decoder."""

from __future__ import annotations

import re
from collections.abc import Callable

from fleetward_engine.hf.json_file import JsonObject
from fleetward_engine.model_tokenizer import byte_level_bytes

Step = Callable[[str], str | bytes]
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_WITHOUT_EFFECT = frozenset({"Fuse", "Strip"})
"""Steps that join tokens, or take spaces from a text's very beginning: a stream goes on from a
prompt, so the space before its first word belongs to it."""


def read_token_bytes(definition: JsonObject) -> Callable[[str], bytes]:
    """From a token's spelling in the vocabulary to the bytes it adds.

    Raises:
        ModelUnsupported: a decoder there is no code for; names it.
    """
    decoder = definition.section("decoder")
    if decoder is None:
        definition.refuse("decoder", "is missing: without it tokens can't become text")
    steps = [step for one in _flat(decoder) for step in _step(one)]

    def decode(token: str) -> bytes:
        value: str | bytes = token
        for step in steps:
            if isinstance(value, str):
                value = step(value)
        return value if isinstance(value, bytes) else value.encode("utf-8", "replace")

    return decode


def _flat(decoder: JsonObject) -> list[JsonObject]:
    if decoder.text("type") != "Sequence":
        return [decoder]
    items = enumerate(decoder.items("decoders"))
    return [
        JsonObject(decoder.path, item, f"{decoder.at}decoders[{number}].")
        for number, item in items
        if isinstance(item, dict)
    ]


def _step(decoder: JsonObject) -> list[Step]:
    kind = decoder.text("type")
    if kind in _WITHOUT_EFFECT:
        return []
    if kind == "ByteLevel":
        return [byte_level_bytes]
    if kind == "ByteFallback":
        return [_byte_fallback]
    if kind == "Metaspace":
        space = decoder.text("replacement", default="\u2581")
        return [lambda token: token.replace(space, " ")]
    pattern = decoder.section("pattern") if kind == "Replace" else None
    if pattern is None or pattern.get("String") is None:
        known = "ByteLevel, ByteFallback, Fuse, Metaspace, Replace of a String, Strip"
        decoder.refuse("type", f"{kind[:40]!r} has no code here: only {known}")
    old, new = pattern.text("String"), decoder.text("content")
    return [lambda token: token.replace(old, new)]


def _byte_fallback(token: str) -> str | bytes:
    match = _BYTE_TOKEN.fullmatch(token)
    return token if match is None else bytes([int(match.group(1), 16)])
