"""The memory of an engine, shared out once at start: what each part takes, and what KV may have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fleetward_api.admin import MemoryState
from fleetward_engine.errors import ConfigInvalid

_MARGIN_PERCENT: Final = 5
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What is known before KV is given anything. Bytes.

    Attributes:
        available: what the device, or the container where the model runs in its memory, has.
        weights: the model.
        activations: the largest step.
        runtime: what the process has of its own, and will take for requests.
        host_kv: KV blocks that left the device, where they share this memory.
    """

    available: int
    weights: int
    activations: int
    runtime: int
    host_kv: int = 0

    @property
    def margin(self) -> int:
        """Left alone: memory is never had to the last byte."""
        return self.available * _MARGIN_PERCENT // 100

    @property
    def left_for_kv(self) -> int:
        """What KV may have; negative where the rest alone is too much."""
        taken = self.weights + self.activations + self.runtime + self.host_kv + self.margin
        return self.available - taken

    def with_kv(self, kv: int) -> MemoryState:
        """The whole budget."""
        return MemoryState(
            available_bytes=self.available,
            weights_bytes=self.weights,
            activations_bytes=self.activations,
            kv_bytes=kv,
            host_kv_bytes=self.host_kv,
            runtime_bytes=self.runtime,
            margin_bytes=self.margin,
        )


def count_blocks(needs: Needs, *, wanted: int | None, block_bytes: int, most: int) -> int:
    """KV blocks to have: in `wanted` bytes or, where that is None, in what is left.

    Never more than `most`, which all sequences at full length need. The pool has one more than it
    hands out, which comes on top of what is wanted.

    Raises:
        ConfigInvalid: not even one fits, or what is wanted does not; with the sum.
    """
    if wanted is not None and wanted < block_bytes:
        raise ConfigInvalid(
            f"kv_cache_memory_bytes {wanted} holds not even one block of {block_bytes} bytes"
        )
    fit = needs.left_for_kv // block_bytes - 1
    blocks = min(most, fit if wanted is None else wanted // block_bytes)
    if blocks > fit or fit < 1:
        need = needs.with_kv((max(blocks, 1) + 1) * block_bytes)
        over = sum(size for _, size in need.parts) - needs.available
        raise ConfigInvalid(
            f"the engine needs {mebibytes(over)} more memory than there is: {one_line(need)}. "
            "Give it more, or lower kvMemory, maxNumBatchedTokens, maxModelLen or maxNumSeqs"
        )
    return blocks


def check_host_kv(host_kv: int, *, limit: int, runtime: int) -> None:
    """Return if KV blocks fit into the host's memory, where the model lies on an accelerator.

    Raises:
        ConfigInvalid: they don't, beside what the process itself takes.
    """
    needs = Needs(available=limit, weights=0, activations=0, runtime=runtime, host_kv=host_kv)
    if host_kv and needs.left_for_kv < 0:
        raise ConfigInvalid(
            f"hostKvMemory is {mebibytes(-needs.left_for_kv)} more than the container has room "
            f"for: {one_line(needs.with_kv(0))}. Lower it, or raise spec.resources.memory"
        )


def table(budget: MemoryState) -> str:
    """The budget for the log, a part a line."""
    free = budget.available_bytes - sum(size for _, size in budget.parts)
    lines = [
        *((name, size) for name, size in budget.parts if size),
        ("not used", free),
        ("available", budget.available_bytes),
    ]
    return "\n".join(f"  {name:<12}{mebibytes(size):>12}" for name, size in lines)


def one_line(budget: MemoryState) -> str:
    """The budget as a sum."""
    told = " + ".join(f"{name} {mebibytes(size)}" for name, size in budget.parts if size)
    return f"{told} of {mebibytes(budget.available_bytes)} available"


def mebibytes(size: int) -> str:
    """A size for people."""
    return f"{size / _MIB:,.0f} MiB"
