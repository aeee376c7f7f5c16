"""Sentences for people."""

from __future__ import annotations

from collections.abc import Sequence


def enumerated(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`; empty for none."""
    if len(words) < 2:  # noqa: PLR2004 - nothing to join
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
