"""The seam between the engine and whatever computes: one call a step over ragged rows."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fleetward_engine.outputs import TokenLogprobs
from fleetward_engine.request import SamplingParams


@dataclass(frozen=True, slots=True)
class SampleRow:
    """A row whose last token's logits choose the request's next token.

    `row` indexes the step's rows. `seed`, `choice` and `index` (how many tokens were generated
    before) are the counter that the random number is drawn from. `prompt_token_ids` and
    `output_token_ids` are for penalties. `banned_token_ids` can't be chosen, nor can tokens whose
    bit in `allowed` is 0 (`GrammarState.allowed`; None allows all).
    """

    row: int
    params: SamplingParams
    seed: int
    choice: int
    index: int
    prompt_token_ids: SequenceOf[int]
    output_token_ids: SequenceOf[int]
    banned_token_ids: frozenset[int]
    allowed: bytes | None = None


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """Tokens of a row whose logits tell how likely the known token after each was.

    Beginning with the row's `skip`-th token of this step: the logits of each foretell one of
    `targets`, in order. `top` most likely tokens are told beside it.
    """

    row: int
    skip: int
    targets: SequenceOf[int]
    top: int


@dataclass(frozen=True, slots=True)
class StepInput:
    """One ragged batch; row r owns tokens `row_offsets[r]` to `row_offsets[r + 1]`.

    `token_ids` and `positions` are flat over all rows, [tokens]. `block_tables` has one list a
    row, enough for every position up to the row's last. KV of these tokens is written first, so
    rows attend to all positions up to their own. Only `sample_rows` and `score_rows` need logits.
    """

    token_ids: SequenceOf[int]
    positions: SequenceOf[int]
    row_offsets: SequenceOf[int]
    block_tables: SequenceOf[SequenceOf[int]]
    sample_rows: SequenceOf[SampleRow]
    score_rows: SequenceOf[ScoreRow] = ()


@dataclass(frozen=True, slots=True)
class Sampled:
    """One sample row's token, or None where its logits were not finite."""

    token_id: int | None
    logprobs: TokenLogprobs | None = None


@dataclass(frozen=True, slots=True)
class StepOutput:
    """One `Sampled` per sample row, and what was found of each score row's targets, in order."""

    sampled: SequenceOf[Sampled]
    scored: SequenceOf[tuple[TokenLogprobs, ...]]


class BlockMover(Protocol):
    """Copies of whole blocks, out of the KV memory and into it, as `block_bytes` bytes in a row."""

    @property
    def block_bytes(self) -> int:
        """Bytes of KV a block."""

    def read_block(self, block: int, into: npt.NDArray[np.uint8]) -> None:
        """Copy all of a block's bytes; done when it returns. into: [block_bytes]."""

    def write_block(self, block: int, data: npt.NDArray[np.uint8]) -> None:
        """Overwrite a block with what `read_block` gave; done when it returns."""


class ModelRunner(BlockMover, Protocol):
    """A model and its KV memory.

    `num_blocks` blocks can be addressed, ids 1 to num_blocks; block 0 stays zero and may pad a
    table. `block_bytes` is what overwriting one block overwrites. `kv_layout` is the canonical
    string that goes into the cache root.
    """

    @property
    def num_blocks(self) -> int:
        """Usable blocks."""

    @property
    def block_size(self) -> int:
        """Tokens a block."""

    @property
    def vocab_size(self) -> int:
        """Token ids run from 0 to vocab_size - 1."""

    @property
    def max_model_len(self) -> int:
        """Longest sequence the model was made for."""

    @property
    def kv_layout(self) -> str:
        """Everything about KV bytes that must match for reuse, as one string."""

    def run(self, step: StepInput) -> StepOutput:
        """Compute one step."""

    def zero_blocks(self, blocks: SequenceOf[int]) -> None:
        """Overwrite these blocks' KV with zeros; done when it returns."""

    def fingerprint_blocks(self, blocks: SequenceOf[int]) -> list[int]:
        """A number for each block that changes with any bit of its KV, in every layer."""
