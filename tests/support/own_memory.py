"""What is still in this process's memory of words that a test made and let go."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

_CHUNK = 1 << 24


class Words:
    """Words that stand nowhere else, also not in a source file; few are ever alive at once."""

    def __init__(self, mark: str, count: int, *, digits: int = 40) -> None:
        self.mark = mark
        self.count = count
        self._digits = digits

    def __getitem__(self, number: int) -> str:
        return self.mark + hashlib.sha256(str(number).encode()).hexdigest()[: self._digits]

    def still_held(self) -> int:
        """How many of them are anywhere in writable memory."""
        pattern = re.compile(self.mark.encode() + b"[0-9a-f]{%d}" % self._digits)
        found = _found(pattern)
        return sum(self[number].encode() in found for number in range(self.count))


def _found(pattern: re.Pattern[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        for line in Path("/proc/self/maps").read_text().splitlines():
            span, rights, *_ = line.split()
            if not rights.startswith("rw") or "[v" in line:
                continue
            start, end = (int(each, 16) for each in span.split("-"))
            for at in range(start, end, _CHUNK):
                memory.seek(at)
                try:
                    found |= set(pattern.findall(memory.read(min(_CHUNK, end - at))))
                except OSError:
                    break
    return found
