"""What the largest step needs beside weights and KV, from the sizes of model and step.

An upper bound of what is live at once, for models of the llama family as `models/llama.py` and
`attention.py` run them; a test holds it to what steps really take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SCORED_AT_ONCE: Final = 64
"""Rows whose logits are made together when a prompt is scored."""

_FLOAT_BYTES: Final = 4
_DOUBLE_BYTES: Final = 8
_MARGIN_PERCENT: Final = 15
"""For what the kernels themselves take, which is theirs to choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSizes:
    """Sizes of a model and of its largest step.

    Attributes:
        hidden, ffn, vocab: widths of the model.
        query_width, kv_width: numbers of a token's queries, and of its keys and values together.
        windows: how many different windows its layers have.
        number_bytes: of one activation.
        kv_is_packed: whether the KV is kept in fewer bits and unpacked to be read.
        tokens, rows, context: of a step: tokens, sequences, and positions of the longest one.
        read_bytes: KV that rows read together, padding included; one row may read more.
    """

    hidden: int
    ffn: int
    vocab: int
    query_width: int
    kv_width: int
    windows: int
    number_bytes: int
    kv_is_packed: bool
    tokens: int
    rows: int
    context: int
    read_bytes: int


def activation_bytes(sizes: StepSizes) -> int:
    """Bytes that the largest step has live at once, at most."""
    number, tokens = sizes.number_bytes, sizes.tokens
    # The residual stream before and after a layer's half, its norm, and the norm's own float32.
    stream = tokens * sizes.hidden * (3 * number + 2 * _FLOAT_BYTES)
    qkv = sizes.query_width + sizes.kv_width
    # Queries, keys and values; the part of them that turns; the attention's result, twice.
    attention = tokens * number * (2 * qkv + 3 * sizes.query_width) + _read(sizes)
    feed_forward = tokens * number * (3 * sizes.ffn + 2 * sizes.hidden)
    seen = tokens * sizes.context
    masks = seen * sizes.windows * number
    layer = stream + max(attention, feed_forward) + masks
    # While the last mask is made, it is there with three of truth values.
    making_masks = masks + 3 * seen
    logits = sizes.rows * sizes.vocab * number + 3 * sizes.vocab * _DOUBLE_BYTES
    scores = SCORED_AT_ONCE * sizes.vocab * (number + 2 * _FLOAT_BYTES)
    sampling = tokens * sizes.hidden * number + max(logits, scores)
    return max(layer, making_masks, sampling) * (100 + _MARGIN_PERCENT) // 100


def _read(sizes: StepSizes) -> int:
    """Bytes of the KV that is read together, with the masks of decode rows."""
    token_bytes = sizes.kv_width * sizes.number_bytes
    read = max(sizes.read_bytes, sizes.context * token_bytes)
    masks = read // token_bytes * (sizes.number_bytes + 2)
    if sizes.kv_is_packed:
        # As it lies, as numbers, times its scales in float32, and as the model's own numbers.
        unpacked = 2 + _FLOAT_BYTES + _FLOAT_BYTES // 2
        return read + read // sizes.number_bytes * unpacked + masks
    return read + masks
