"""Seeded mutations of evidence files, and where the first wrong record of each must be.

The place is told by comparing lines with the file before, never by asking the verifier.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO

Files = Sequence[bytes]
Mutation = Callable[[random.Random, bytes, bytes], bytes]


@dataclass(frozen=True, slots=True)
class Mutated:
    """One mutated file: how it was made, its bytes, the number of its first wrong record."""

    kind: str
    data: bytes
    record: int


def lines_of(data: bytes) -> list[bytes]:
    """The records with their line ends; only a newline ends one."""
    return list(BytesIO(data))


def first_difference(before: bytes, after: bytes) -> int | None:
    """Number of the first record that is not the one that stood there; None when equal."""
    old, new = lines_of(before), lines_of(after)
    for number, (one, other) in enumerate(zip(old, new, strict=False), start=1):
        if one != other:
            return number
    return None if len(old) == len(new) else min(len(old), len(new)) + 1


def mutate(rng: random.Random, files: Files, kind: str) -> Mutated:
    """A file that is none of `files`, made from one or two of them by a mutation of `kind`."""
    while True:
        mine, other = rng.sample(files, 2)
        data = MUTATIONS[kind](rng, mine, other)
        if data not in files:
            return Mutated(kind, data, first_wrong_record(files, data))


def first_wrong_record(files: Files, data: bytes) -> int:
    """Number of the first record that does not belong in a file with this header.

    The header says which evidence a file is: whatever follows is held against that one.
    """
    header = lines_of(data)[:1]
    told = [first_difference(one, data) for one in files if lines_of(one)[:1] == header]
    return max((record for record in told if record is not None), default=1)


def _flip(rng: random.Random, mine: bytes, _other: bytes) -> bytes:
    at = rng.randrange(len(mine))
    return mine[:at] + bytes([mine[at] ^ rng.randint(1, 255)]) + mine[at + 1 :]


def _lose_byte(rng: random.Random, mine: bytes, _other: bytes) -> bytes:
    at = rng.randrange(len(mine))
    return mine[:at] + mine[at + 1 :]


def _insert_byte(rng: random.Random, mine: bytes, _other: bytes) -> bytes:
    at = rng.randrange(len(mine) + 1)
    return mine[:at] + rng.randbytes(1) + mine[at:]


def _drop(rng: random.Random, mine: bytes, _other: bytes) -> bytes:
    lines = lines_of(mine)
    for _ in range(rng.randint(1, 3)):
        del lines[rng.randrange(len(lines))]
    return b"".join(lines)


def _reorder(rng: random.Random, mine: bytes, _other: bytes) -> bytes:
    lines = lines_of(mine)
    rng.shuffle(lines)
    return b"".join(lines)


def _exchange(rng: random.Random, mine: bytes, _other: bytes) -> bytes:
    lines = lines_of(mine)
    one, two = rng.sample(range(len(lines)), 2)
    lines[one], lines[two] = lines[two], lines[one]
    return b"".join(lines)


def _truncate(rng: random.Random, mine: bytes, _other: bytes) -> bytes:
    return mine[: rng.randrange(len(mine))]


def _truncate_at_record(rng: random.Random, mine: bytes, _other: bytes) -> bytes:
    lines = lines_of(mine)
    return b"".join(lines[: rng.randrange(len(lines))])


def _duplicate(rng: random.Random, mine: bytes, _other: bytes) -> bytes:
    lines = lines_of(mine)
    lines.insert(rng.randint(0, len(lines)), rng.choice(lines))
    return b"".join(lines)


def _from_another(rng: random.Random, mine: bytes, other: bytes) -> bytes:
    lines, others = lines_of(mine), lines_of(other)
    lines[rng.randrange(len(lines))] = rng.choice(others)
    return b"".join(lines)


def _splice(rng: random.Random, mine: bytes, other: bytes) -> bytes:
    lines, others = lines_of(mine), lines_of(other)
    return b"".join([*lines[: rng.randint(0, len(lines))], *others[rng.randint(0, len(others)) :]])


def _splice_in_place(rng: random.Random, mine: bytes, other: bytes) -> bytes:
    """The first records of one evidence and the rest of another, every number in order."""
    lines, others = lines_of(mine), lines_of(other)
    at = rng.randint(1, min(len(lines), len(others)) - 1)
    return b"".join([*lines[:at], *others[at:]])


MUTATIONS: dict[str, Mutation] = {
    "flip a byte": _flip,
    "lose a byte": _lose_byte,
    "insert a byte": _insert_byte,
    "drop records": _drop,
    "shuffle records": _reorder,
    "exchange two records": _exchange,
    "truncate inside a record": _truncate,
    "truncate between records": _truncate_at_record,
    "duplicate a record": _duplicate,
    "a record of another file": _from_another,
    "splice two files": _splice,
    "splice two files in place": _splice_in_place,
}
