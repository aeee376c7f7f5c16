"""A runner without a model: real block tables, real bytes, invented tokens.

Its "KV" of a token is the token itself, written through the block table; the next token is a hash
of everything read back through it. So a wrong block, a stale byte or a bad reuse changes the
output, exactly as with a real model, and time passes as the profile says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from fleetward_engine.model_runner import Sampled, SampleRow, StepInput, StepOutput
from fleetward_engine.outputs import TokenLogprobs
from fleetward_engine.simulation_profile import SimulationProfile
from fleetward_engine.tokenizer import ByteTokenizer

_ALPHABET = b"etaoinshrdlucmfw yp vbgk jqxz   "
_PRINTABLE = range(0x20, 0x7F)


class SimulatedRunner:
    """Implements `ModelRunner`. Sampling has no effect.

    Every text goes on until its `max_tokens`, unless it follows a grammar to its end.

    Args:
        num_blocks: usable blocks. block_size: tokens a block.
        sleep: called with the seconds a step would take.
    """

    def __init__(
        self,
        profile: SimulationProfile,
        *,
        num_blocks: int,
        block_size: int,
        sleep: Callable[[float], None],
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.vocab_size = ByteTokenizer().vocab_size
        self.max_model_len = profile.max_model_len
        self.kv_layout = f"simulated/block={block_size}/token=u16"
        self._profile = profile
        self._sleep = sleep
        # kv: [block, slot], the token id plus one; zero is a slot nobody wrote
        self._kv = np.zeros((num_blocks + 1, block_size), dtype=np.uint16)

    @property
    def block_bytes(self) -> int:
        """Bytes that overwriting one block really overwrites here."""
        return self.block_size * self._kv.itemsize

    def run(self, step: StepInput) -> StepOutput:
        """Write the step's tokens, wait as long as the profile says, invent the next ones."""
        starts, ends = step.row_offsets[:-1], step.row_offsets[1:]
        for table, start, end in zip(step.block_tables, starts, ends, strict=True):
            positions = np.asarray(step.positions[start:end])
            blocks = np.asarray(table)[positions // self.block_size]
            tokens = np.asarray(step.token_ids[start:end])
            self._kv[blocks, positions % self.block_size] = tokens + 1
        decodes = sum(1 for start, end in zip(starts, ends, strict=True) if end - start == 1)
        prefill = len(step.token_ids) - decodes
        seconds = self._profile.step_seconds(prefill_tokens=prefill, decode_rows=decodes)
        self._sleep(seconds)
        return StepOutput(
            sampled=[self._sample(step, row) for row in step.sample_rows],
            scored=[tuple(map(_certain, row.targets)) for row in step.score_rows],
        )

    def zero_blocks(self, blocks: Sequence[int]) -> None:
        """Overwrite the blocks' tokens with zeros."""
        self._kv[list(blocks)] = 0

    def fingerprint_blocks(self, blocks: Sequence[int]) -> list[int]:
        """See `ModelRunner`."""
        digests = (hashlib.sha256(self._kv[block].tobytes()).digest() for block in blocks)
        return [int.from_bytes(digest[:8], "little") for digest in digests]

    def read_block(self, block: int, into: npt.NDArray[np.uint8]) -> None:
        """See `BlockMover`."""
        into[:] = self._kv[block].view(np.uint8)

    def write_block(self, block: int, data: npt.NDArray[np.uint8]) -> None:
        """See `BlockMover`."""
        self._kv[block] = data.view(np.uint16)

    def holds_nothing(self, blocks: Iterable[int]) -> bool:
        """Whether every slot of these blocks is zero (what a purge must leave)."""
        return not self._kv[list(blocks)].any()

    def _sample(self, step: StepInput, sample: SampleRow) -> Sampled:
        length = step.positions[step.row_offsets[sample.row + 1] - 1] + 1
        context = self._kv[list(step.block_tables[sample.row])].reshape(-1)[:length]
        digest = hashlib.sha256(context.tobytes()).digest()
        choices = _ALPHABET if sample.allowed is None else _printable(sample.allowed)
        token = int(choices[int.from_bytes(digest[:4], "little") % len(choices)])
        if sample.params.logprobs is None:
            return Sampled(token)
        return Sampled(token, _certain(token))


def _certain(token: int) -> TokenLogprobs:
    return TokenLogprobs(token, 0.0, ((token, 0.0),))


def _printable(allowed: bytes) -> Sequence[int]:
    """The tokens that a grammar allows: those of printable ASCII, where there are any."""
    bits = np.unpackbits(np.frombuffer(allowed, dtype=np.uint8), bitorder="little")
    tokens: list[int] = np.flatnonzero(bits).tolist()
    return [token for token in tokens if token in _PRINTABLE] or tokens
