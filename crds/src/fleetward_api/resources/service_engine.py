"""How the engine runs: the ``engine`` part of an InferenceService. Knobs bear their usual names."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from fleetward_api.resources.base import ApiModel
from fleetward_api.resources.rules import Rule, absent, only
from fleetward_api.resources.scalars import WHOLE, MemoryAmount, ShortText

Runner: TypeAlias = Literal["Torch", "Simulated"]
Dtype: TypeAlias = Literal["Auto", "BFloat16", "Float32"]
ParallelDegree: TypeAlias = Annotated[int, Field(ge=1, le=64), WHOLE]


class QuantizationSpec(ApiModel):
    """Smaller numbers for weights and KV cache."""

    weights: Literal["None", "Int8", "Int4"] = "None"
    """Quantisation of the weights at load time; a quantised file is read as it is. None today."""
    kv_cache: Literal["Auto", "Int8", "Fp8"] = "Auto"
    """Numbers in the KV cache: Auto keeps the model's own; Int8 holds nearly twice as many tokens
    as bfloat16, each head's keys and values with a scale of their own. By restart. Fp8 is not
    available yet."""

    rules = (
        only("weights", "None", "spec.engine.quantization.weights", "set it to None"),
        only(
            "kv_cache",
            ("Auto", "Int8"),
            "spec.engine.quantization.kvCache",
            "set it to one of them",
        ),
    )


class SpeculativeSpec(ApiModel):
    """Speculative decoding."""

    method: Literal["None", "Ngram", "Draft"] = "None"
    """Who proposes tokens: nobody, the prompt's own n-grams, or a draft model. None today."""
    num_speculative_tokens: Annotated[int, Field(ge=1, le=64), WHOLE] | None = None
    """Tokens proposed per step."""
    draft_model: ShortText | None = None
    """Source of the draft model."""

    rules = (
        only("method", "None", "spec.engine.speculative.method", "set it to None"),
        absent(
            "num_speculative_tokens",
            "spec.engine.speculative.numSpeculativeTokens",
            "remove it, no method uses it",
        ),
        absent(
            "draft_model",
            "spec.engine.speculative.draftModel",
            "remove it, no method uses it",
        ),
    )


class ParallelismSpec(ApiModel):
    """How one replica spreads over accelerators."""

    tensor: ParallelDegree = 1
    """Tensor-parallel degree. 1 today."""
    pipeline: ParallelDegree = 1
    """Pipeline-parallel degree. 1 today."""
    expert: ParallelDegree = 1
    """Expert-parallel degree. 1 today."""

    rules = tuple(
        only(kind, 1, f"spec.engine.parallelism.{kind}", "set it to 1")
        for kind in ("tensor", "pipeline", "expert")
    )


class EngineSpec(ApiModel):
    """The engine of every replica."""

    image: (
        Annotated[str, Field(max_length=512, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$")] | None
    ) = None
    """Container image; the release's default image when absent. Bounded by the allow-list in the
    release's values."""
    runner: Runner = "Torch"
    """Torch computes; Simulated runs the same scheduler without a model, for tests and trials of
    capacity, and its answers mean nothing (the status says so)."""
    dtype: Dtype = "Auto"
    """Number type of weights and activations; Auto takes bfloat16 where it is fast."""
    quantization: QuantizationSpec = QuantizationSpec()
    """Smaller numbers for weights and KV cache."""
    max_model_len: Annotated[int, Field(ge=1, le=16_777_216), WHOLE] | None = None
    """Longest sequence, prompt and answer together, in tokens; the model's limit when absent."""
    max_num_seqs: Annotated[int, Field(ge=1, le=4096), WHOLE] = 64
    """Most sequences computed in one step."""
    max_num_batched_tokens: Annotated[int, Field(ge=1, le=1_048_576), WHOLE] = 1024
    """Token budget of one step, prefill and decode together. Beside running answers, prompts get at
    most a quarter of it (with chunkedPrefill), so that it bounds how long a token waits."""
    block_size: Annotated[int, Field(ge=8, le=256, multiple_of=8), WHOLE] = 32
    """Tokens in one KV block, the unit of reuse."""
    chunked_prefill: bool = True
    """Whether a long prefill is split over steps so that decoding sequences go on."""
    prefix_caching: bool = True
    """Whether KV blocks are kept for reuse at all, within the bounds of the cache policy."""
    batch_invariant: bool = False
    """Whether a request's tokens are the same, to the bit, whatever else the engine computes:
    alone, in any batch, in chunks of any size, from cache or not. It costs speed (docs/openai.md).
    By restart."""
    verify_kv: bool = False
    """Whether each cached block is compared at every use with what it held when it was cached. One
    that has changed is never used: it is counted and computed anew. Reading a cached prefix then
    costs as much as copying it. By restart."""
    speculative: SpeculativeSpec = SpeculativeSpec()
    """Speculative decoding."""
    parallelism: ParallelismSpec = ParallelismSpec()
    """How one replica spreads over accelerators."""
    kv_memory: MemoryAmount | None = None
    """Memory for KV blocks, in bytes as a quantity; when absent, what the model, the largest step
    and the process leave. By restart."""
    host_kv_memory: MemoryAmount | None = None
    """Host memory for KV blocks that had to leave the device, in bytes as a quantity; none when
    absent. Used as far as the cache policy's spec.tiers.host and retention classes let it. By
    restart."""

    rules = (
        Rule(
            cel="!has(self.hostKvMemory) || self.prefixCaching",
            message=(
                "spec.engine.prefixCaching false keeps no blocks for reuse: "
                "remove spec.engine.hostKvMemory"
            ),
            holds=lambda self: self.host_kv_memory is None or self.prefix_caching,
            field="host_kv_memory",
        ),
        Rule(
            cel="self.runner != 'Simulated' || self.quantization.kvCache == 'Auto'",
            message=(
                "spec.engine.runner Simulated keeps no keys and values: "
                "set spec.engine.quantization.kvCache to Auto"
            ),
            holds=lambda self: self.runner != "Simulated" or self.quantization.kv_cache == "Auto",
            field="quantization",
        ),
        Rule(
            cel="self.maxNumBatchedTokens >= self.maxNumSeqs",
            message=(
                "spec.engine.maxNumBatchedTokens must not be below spec.engine.maxNumSeqs: "
                "every decoding sequence needs one token of the step's budget"
            ),
            holds=lambda self: self.max_num_batched_tokens >= self.max_num_seqs,
            field="max_num_batched_tokens",
        ),
        Rule(
            cel=(
                "self.chunkedPrefill || (has(self.maxModelLen)"
                " && self.maxNumBatchedTokens >= self.maxModelLen)"
            ),
            message=(
                "spec.engine.chunkedPrefill false needs spec.engine.maxModelLen, and "
                "spec.engine.maxNumBatchedTokens not below it: a prompt must fit into one step"
            ),
            holds=lambda self: (
                self.chunked_prefill
                or (
                    self.max_model_len is not None
                    and self.max_num_batched_tokens >= self.max_model_len
                )
            ),
            field="chunked_prefill",
        ),
    )
