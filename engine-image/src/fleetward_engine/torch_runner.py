"""The model runner on torch: one forward over the step's flat batch, on a CPU or a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fleetward_engine.attention import PagedAttention
from fleetward_engine.int8_kv import Int8Kv
from fleetward_engine.invariance_check import check_invariance
from fleetward_engine.invariant_attention import InvariantAttention
from fleetward_engine.kv_fingerprint import KvFingerprint
from fleetward_engine.memory.activations import SCORED_AT_ONCE
from fleetward_engine.model_runner import ScoreRow, StepInput, StepOutput
from fleetward_engine.models.llama import Llama
from fleetward_engine.models.rope import rope_layout
from fleetward_engine.models.rowwise import at_once, in_tiles
from fleetward_engine.outputs import TokenLogprobs
from fleetward_engine.paged_kv import KvMemory, KvShape, PagedKv
from fleetward_engine.sampler import sample, score

"""Positions whose logits are held at a time: with 50,000 tokens, 13 MB in float32."""


class TorchRunner:
    """Implements `ModelRunner`.

    Args:
        model: the loaded model; the KV lies on its device.
        num_blocks: usable blocks. block_size: tokens a block.
        kv_dtype: numbers that the KV is kept in: the model's own, or int8.
        batch_invariant: compute each token the same, whatever else is in its batch.

    Raises:
        ConfigInvalid: this device can't compute rows that don't depend on their place.
    """

    def __init__(
        self,
        model: Llama,
        *,
        num_blocks: int,
        block_size: int,
        kv_dtype: torch.dtype | None = None,
        batch_invariant: bool = False,
    ) -> None:
        self._attention = InvariantAttention if batch_invariant else PagedAttention
        self._rowwise = in_tiles if batch_invariant else at_once
        if batch_invariant:
            check_invariance(model)
        self._model = model
        self._kv_dtype = kv_dtype or model.dtype
        kind = Int8Kv if self._kv_dtype is torch.int8 else PagedKv
        self._kv: KvMemory = kind(
            kv_shape(model, block_size),
            num_blocks=num_blocks,
            dtype=model.dtype,
            device=model.device,
        )
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.vocab_size = model.config.vocab_size
        self.max_model_len = model.config.max_model_len

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all layers."""
        return self._kv.block_bytes

    @property
    def kv_layout(self) -> str:
        """See `ModelRunner`: every constant that shapes a key or value."""
        shape, config = self._kv.shape, self._model.config
        kinds = dict.fromkeys((self._model.dtype, self._kv_dtype))
        dtype = "+".join(str(kind).removeprefix("torch.") for kind in kinds)
        rope = rope_layout(config.rope_theta, config.rope_scaling)
        # Which layer has which window is fixed by the model's digest, which stands beside this.
        window = "+".join(sorted({str(window or "none") for window in shape.windows}))
        return (
            f"torch/{dtype}/block={self.block_size}/layers={shape.num_layers}"
            f"/kv={shape.num_kv_heads}x{shape.head_dim}/rope={rope}/window={window}"
        )

    @torch.inference_mode()
    def run(self, step: StepInput) -> StepOutput:
        """One forward pass; logits only where a row samples or is scored."""
        device = self._model.device
        attention = self._attention(self._kv, step, dtype=self._model.dtype)
        hidden = self._model.forward(
            torch.tensor(step.token_ids, device=device),
            torch.tensor(step.positions, device=device),
            attention,
            rowwise=self._rowwise,
        )
        scored = [self._score(hidden, step.row_offsets[row.row], row) for row in step.score_rows]
        if not step.sample_rows:
            return StepOutput([], scored)
        last = [step.row_offsets[row.row + 1] - 1 for row in step.sample_rows]
        if len(last) < hidden.shape[0]:
            hidden = hidden[torch.tensor(last, device=device)]
        return StepOutput(sample(self._logits(hidden), step.sample_rows), scored)

    def _logits(self, hidden: Tensor) -> Tensor:
        return self._model.logits(hidden, rowwise=self._rowwise)

    def _score(self, hidden: Tensor, start: int, row: ScoreRow) -> tuple[TokenLogprobs, ...]:
        """How likely known tokens were; a slice at a time, for each has a whole row of logits."""
        found: list[TokenLogprobs] = []
        for done in range(0, len(row.targets), SCORED_AT_ONCE):
            targets = row.targets[done : done + SCORED_AT_ONCE]
            first = start + row.skip + done
            logits = self._logits(hidden[first : first + len(targets)])
            found += score(logits, targets, top=row.top)
        return tuple(found)

    @torch.inference_mode()
    def zero_blocks(self, blocks: Sequence[int]) -> None:
        """Overwrite these blocks' keys and values in every layer."""
        self._kv.zero(blocks)

    @torch.inference_mode()
    def read_block(self, block: int, into: npt.NDArray[np.uint8]) -> None:
        """See `BlockMover`."""
        torch.from_numpy(into).copy_(self._kv.raw([block]).view(-1))

    @torch.inference_mode()
    def write_block(self, block: int, data: npt.NDArray[np.uint8]) -> None:
        """See `BlockMover`."""
        self._kv.put(block, torch.from_numpy(data))

    @torch.inference_mode()
    def fingerprint_blocks(self, blocks: Sequence[int]) -> list[int]:
        """See `ModelRunner`."""
        return self._fingerprint(blocks)

    @cached_property
    def _fingerprint(self) -> KvFingerprint:
        """Made at the first use: most engines take no fingerprints."""
        return KvFingerprint(self._kv)


def kv_shape(model: Llama, block_size: int) -> KvShape:
    """The KV shape of a model."""
    config = model.config
    return KvShape(
        num_kv_heads=config.num_kv_heads,
        num_heads=config.num_heads,
        head_dim=config.head_dim,
        block_size=block_size,
        windows=config.windows or (None,) * config.num_layers,
    )
