"""How many values a JSON text would make, counted before any is made.

Parsed, two bytes of text can become a hundred of memory. The limits are far above what a request
of the size that is accepted holds in prompts, messages or token ids.
"""

from __future__ import annotations

from typing import Final

MAX_CONTAINERS: Final = 65_536
MAX_MEMBERS: Final = 65_536
MAX_VALUES: Final = 262_144

_MARKS: Final = b'"{[:,'
_OTHERS: Final = bytes(set(range(256)) - set(_MARKS))
_WINDOW: Final = 1 << 16


def overfull(text: bytes) -> str:
    """Which limit a JSON text is above, such as "65536 members of objects"; "" when none.

    Exact up to the first fault of the text, so that no more than the limits is ever parsed.
    """
    if len(text) <= min(MAX_CONTAINERS, MAX_MEMBERS, MAX_VALUES):
        return ""
    containers = members = values = 0
    within_string = False
    # Without escapes each quote begins or ends a string.
    marks = text.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _OTHERS)
    # In windows: cut up at once, a text of many strings would itself take a lot of memory.
    for start in range(0, len(marks), _WINDOW):
        parts = marks[start : start + _WINDOW].split(b'"')
        outside = b"".join(parts[within_string::2])
        within_string ^= len(parts) % 2 == 0
        opened = outside.count(b"{") + outside.count(b"[")
        containers += opened
        members += outside.count(b":")
        values += opened + outside.count(b",")
        if containers > MAX_CONTAINERS:
            return f"{MAX_CONTAINERS} objects and arrays"
        if members > MAX_MEMBERS:
            return f"{MAX_MEMBERS} members of objects"
        if values > MAX_VALUES:
            return f"{MAX_VALUES} values"
    return ""
