"""A member's own log: each record carries the digest of the one before it, so none can go."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Annotated, Final

from pydantic import Field, JsonValue

from fleetward_api.canonical import (
    Count,
    Digest,
    WireModel,
    canonical_bytes,
    digest,
    parse_canonical,
)

GENESIS: Final = "sha256:" + "0" * 64
"""What the first record names as the one before it."""
DEFAULT_KEPT: Final = 4096


class ChainHead(WireModel):
    """The end of a chain: number and digest of its last record; 0 and `GENESIS` when empty."""

    sequence: Count = 0
    digest: Digest = GENESIS


class ChainRecord(WireModel):
    """One record. Its digest is over its canonical bytes."""

    sequence: Annotated[Count, Field(ge=1)]
    previous: Digest
    kind: Annotated[str, Field(min_length=1, max_length=64)]
    body: dict[str, JsonValue]

    @property
    def head(self) -> ChainHead:
        """The chain's head right after this record."""
        return ChainHead(sequence=self.sequence, digest=digest(canonical_bytes(self)))


class ChainLog:
    """Append-only log that keeps its last records in memory and the head for ever.

    Args:
        kept: records remembered at most; older ones are gone, the chain through them is not.
    """

    __slots__ = ("_head", "_records")

    def __init__(self, *, kept: int = DEFAULT_KEPT) -> None:
        self._head = ChainHead()
        self._records: deque[ChainRecord] = deque(maxlen=kept)

    @property
    def head(self) -> ChainHead:
        """Number and digest of the last record."""
        return self._head

    def append(self, kind: str, body: Mapping[str, JsonValue]) -> ChainHead:
        """Add a record and return the new head. Raises `CanonicalError` for a body with a float."""
        # The round trip takes a copy: what the caller changes later is not in the log.
        copied = parse_canonical(canonical_bytes(dict(body)))
        record = ChainRecord.model_validate(
            {
                "sequence": self._head.sequence + 1,
                "previous": self._head.digest,
                "kind": kind,
                "body": copied,
            }
        )
        self._records.append(record)
        self._head = record.head
        return self._head

    def since(self, sequence: int) -> tuple[ChainRecord, ...]:
        """Return the kept records after number `sequence`, oldest first."""
        return tuple(record for record in self._records if record.sequence > sequence)


def chain_fault(records: Iterable[ChainRecord], *, after: ChainHead, head: ChainHead) -> str | None:
    """Return what is wrong with records that should lead from `after` to `head`, or None."""
    at = after
    for record in records:
        if record.sequence != at.sequence + 1:
            return f"record {at.sequence + 1} is missing"
        if record.previous != at.digest:
            return f"record {record.sequence} does not follow record {at.sequence}"
        at = record.head
    return None if at == head else f"the records end at {at.sequence}, the head is {head.sequence}"
