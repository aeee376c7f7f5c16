"""Declared public texts as the token ids that prompts begin with, cut to what an engine keeps.

A prompt uses public cache where its own token ids are these. So what counts is how clients' prompts
are encoded, and each text has two forms: as the system message of a conversation, and as the
beginning of a plain prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from fleetward_engine.errors import ChatRefused
from fleetward_engine.tokenizer import ChatMessage, Tokenizer

POOL_PART: Final = 4
"""Public prefixes take at most this part of an engine's blocks: the rest is for tenants."""

_SOMEBODY, _SOMEBODY_ELSE = "a", "0"
"""What two users say whose conversations differ from their first character on."""

Form = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PublicPlan:
    """What an engine keeps of the declared texts.

    Attributes:
        forms: token ids in whole blocks, none the beginning of one before it.
        blocks: what they take of the pool at most, with one for the engine to work in; 0 without.
        left_out: blocks that were declared and find no room.
    """

    forms: tuple[Form, ...] = ()
    blocks: int = 0
    left_out: int = 0


def public_forms(tokenizer: Tokenizer, text: str) -> list[Form]:
    """The token ids that prompts with this text at their start begin with.

    The last few may depend on what follows; a prompt that has others there shares one block less.
    A model whose template takes no system message has the plain form only.
    """
    forms = [tuple(tokenizer.encode(text))]
    try:
        some, others = (
            tokenizer.encode_chat(_conversation(text, said)) for said in (_SOMEBODY, _SOMEBODY_ELSE)
        )
    except ChatRefused:
        return forms
    return [*forms, tuple(some[: _common(some, others)])]


def plan_public(
    forms: Iterable[Form], *, block_size: int, num_blocks: int, max_tokens: int
) -> PublicPlan:
    """Cut forms to whole blocks, and to what fits, the first declared first.

    Args:
        forms: token ids, of any length.
        block_size: tokens of a block.
        num_blocks: of the whole pool.
        max_tokens: the longest prompt that the engine takes.
    """
    room = num_blocks // POOL_PART - 1
    kept: list[Form] = []
    left_out = 0
    for form in forms:
        whole = min(len(form), max_tokens) // block_size
        left_out += len(form) // block_size - whole
        if any(form[: whole * block_size] == other[: whole * block_size] for other in kept):
            continue
        count = max(0, min(whole, room))
        room -= count
        left_out += whole - count
        if count:
            kept.append(form[: count * block_size])
    blocks = sum(len(form) for form in kept) // block_size
    return PublicPlan(tuple(kept), blocks=blocks + 1 if kept else 0, left_out=left_out)


def _conversation(text: str, said: str) -> list[ChatMessage]:
    return [{"role": "system", "content": text}, {"role": "user", "content": said}]


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """How many elements two sequences have in common at their start."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((n for n, (one, other) in pairs if one != other), min(len(first), len(second)))
