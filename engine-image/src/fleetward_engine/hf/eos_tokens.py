"""Tokens that end a text, by the model's own files."""

from __future__ import annotations

from fleetward_engine.hf.checkpoint import Checkpoint

_FIELD = "eos_token_id"


def read_eos_token_ids(checkpoint: Checkpoint, *, vocab_size: int) -> frozenset[int]:
    """`eos_token_id` of generation_config.json, else of config.json: one id, several, or none.

    Raises:
        ModelUnsupported: it is no token id of the model.
    """
    source = checkpoint.optional_object("generation_config.json")
    if source.get(_FIELD) is None:
        source = checkpoint.config
    value = source.get(_FIELD)
    if not isinstance(value, list):
        value = [] if value is None else [value]
    for item in value:
        if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < vocab_size:
            source.refuse(_FIELD, f"must name token ids below {vocab_size}, not {item!r:.40}")
    return frozenset(value)
