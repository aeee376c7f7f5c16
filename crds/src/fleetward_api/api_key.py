"""What an entry of a Secret must hold to be an API key; operator and gateway judge alike."""

from __future__ import annotations

from typing import Final

MIN_KEY_CHARS: Final = 16
MAX_KEY_CHARS: Final = 512


def usable_key(value: bytes) -> bytes | None:
    """The API key in a Secret's entry; None when it is too short or too long to be one.

    White space around it is dropped: files and shells like to add a line end.
    """
    key = value.strip()
    return key if MIN_KEY_CHARS <= len(key) <= MAX_KEY_CHARS else None
