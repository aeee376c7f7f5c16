"""JSON of clients and models, read by a parser that keeps nothing of it."""

from __future__ import annotations

from pydantic_core import from_json


def parse_json(text: bytes | str) -> object:
    """The value of a JSON text.

    For what users write: faster parsers keep the names of objects' members, or all short strings,
    for as long as the process lives, so that later texts cost less. NaN is refused; a number too
    large for a float is infinite.

    Raises:
        ValueError: where it is no JSON, and what was expected there; it quotes nothing.
    """
    value: object = from_json(text, allow_inf_nan=False, cache_strings=False)
    return value
