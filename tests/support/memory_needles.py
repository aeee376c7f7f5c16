"""Whether this process's memory holds certain bytes anywhere, asked without holding them itself."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_CHUNK = 1 << 24
_TABLE_BITS = 22
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class Needles:
    """Byte strings of `width` 64-bit words, known by 64-bit hashes alone, each under a label.

    What a scan copies of memory is overwritten again: neither the needles nor a scan that found
    them leaves anything for a later one to find.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        rng = np.random.default_rng(width)
        self._factors: Words = rng.integers(1, 1 << 63, width, dtype=np.uint64) | np.uint64(1)
        self._labels: dict[int, str] = {}
        self._first_words = np.zeros(1 << _TABLE_BITS, dtype=bool)
        self._chunk = bytearray(_CHUNK + 8 * width + 8)

    def __len__(self) -> int:
        return len(self._labels)

    def add(self, rows: Words, label: str) -> None:
        """Look for each of these rows from now on. rows: [n, width]; overwritten with zeros."""
        self._first_words[_bucket(rows[:, 0])] = True
        for code in self._codes(rows):
            self._labels[int(code)] = label
        rows.fill(0)

    def found(self, *, every: int = 1) -> Counter[str]:
        """How many different needles of each label are in writable memory.

        At addresses that are multiples of `every` bytes (1, 2, 4 or 8).
        """
        seen: set[int] = set()
        with Path("/proc/self/mem").open("rb", buffering=0) as memory:
            for start, end in self._spans():
                for at in range(start, end, _CHUNK):
                    size = min(len(self._chunk), end - at)
                    memory.seek(at)
                    view = memoryview(self._chunk)[:size]
                    try:
                        size = memory.readinto(view) or 0
                    except OSError:
                        break
                    seen |= self._in_chunk(size, every)
        self._chunk[:] = bytes(len(self._chunk))
        return Counter(self._labels[code] for code in seen)

    def _spans(self) -> Iterator[tuple[int, int]]:
        own = np.frombuffer(self._chunk, dtype=np.uint8).ctypes.data
        for line in Path("/proc/self/maps").read_text().splitlines():
            span, rights, *_ = line.split()
            if not rights.startswith("rw") or "[v" in line:
                continue
            start, end = (int(each, 16) for each in span.split("-"))
            # All but the copy that this scan itself makes.
            cuts = sorted({start, end, *_within((own, own + len(self._chunk)), start, end)})
            for low, high in itertools.pairwise(cuts):
                if not own <= low < own + len(self._chunk):
                    yield low, high

    def _in_chunk(self, size: int, every: int) -> set[int]:
        seen: set[int] = set()
        for shift in range(0, 8, every):
            count = (size - shift) // 8
            if count < self.width:
                continue
            words = np.frombuffer(self._chunk, dtype=np.uint64, count=count, offset=shift)
            places = np.flatnonzero(self._first_words[_bucket(words[: count - self.width + 1])])
            if len(places):
                rows = words[places[:, None] + np.arange(self.width)]
                seen |= self._labels.keys() & {int(code) for code in self._codes(rows)}
                rows.fill(0)
        return seen

    def _codes(self, rows: Words) -> Words:
        codes: Words = (rows * self._factors).sum(axis=1, dtype=np.uint64)
        return codes


def pointers(numbers: Sequence[int] | NDArray[np.uint8], width: int) -> Words:
    """How a list or tuple of small ints lies in memory: [n, width], one row for each place."""
    if not all(0 <= number <= 256 for number in numbers):
        raise ValueError("only ints up to 256 have one address each")
    # Through an array: a list of these ints would be what is looked for.
    addresses = np.fromiter(
        (id(int(number)) for number in numbers), dtype=np.uint64, count=len(numbers)
    )
    return windows(addresses, width)


def windows(words: Words, width: int) -> Words:
    """Every run of `width` words: [n, width], a copy."""
    return np.lib.stride_tricks.sliding_window_view(words, width).copy()


def _bucket(words: Words) -> NDArray[np.int64]:
    mixed = (words * _SPREAD) >> np.uint64(64 - _TABLE_BITS)
    return mixed.astype(np.int64)


def _within(cuts: tuple[int, int], start: int, end: int) -> tuple[int, ...]:
    return tuple(cut for cut in cuts if start < cut < end)
