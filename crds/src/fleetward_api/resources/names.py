"""Field names of the API, made from Python names."""

from __future__ import annotations

_ACRONYMS = {"ttl": "TTL"}


def to_api_name(name: str) -> str:
    """``idle_ttl`` becomes ``idleTTL``, ``max_num_seqs`` becomes ``maxNumSeqs``."""
    first, *rest = name.split("_")
    return first + "".join(_ACRONYMS.get(word, word[:1].upper() + word[1:]) for word in rest)
