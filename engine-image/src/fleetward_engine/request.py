"""What a caller asks of the engine: tokens in, how to sample, and which cache it may use."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from fleetward_api.owner import Owner
from fleetward_engine.errors import RequestRefused
from fleetward_engine.grammar import Grammar

MAX_LOGPROBS = 20
MAX_STOP_STRINGS = 16
MAX_BIAS = 100.0

WhyUncached = Literal["no-user", "no-session", "not-stored", "purged"]
"""Why a request uses no cache: isolation asks for a user or a session that it does not name, its
retention class stores nothing, or it was authorised before a purge of a scope that it is in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens are chosen; defaults and meanings follow the OpenAI and vLLM names.

    `temperature` 0 is greedy. `top_k` 0 and `top_p` 1 switch those filters off. `logprobs` N
    asks for the N most likely tokens beside the chosen one's own log-probability (0: only its own);
    `prompt_logprobs` asks the same of each token of the prompt, which is then computed whole.
    Penalties count generated tokens; `repetition_penalty` counts the prompt's too. `logit_bias`
    holds (token id, what is added to its logit) pairs.

    Raises:
        RequestRefused: a value is out of range; `param` names it.
    """

    max_tokens: int
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        """Refuse values outside their range, NaN and infinity included."""
        _in_range("max_tokens", self.max_tokens, low=1, high=2**31)
        _in_range("min_tokens", self.min_tokens, low=0, high=self.max_tokens)
        _in_range("temperature", self.temperature, low=0.0, high=2.0)
        _in_range("top_k", self.top_k, low=0, high=2**31)
        _in_range("min_p", self.min_p, low=0.0, high=1.0)
        _in_range("presence_penalty", self.presence_penalty, low=-2.0, high=2.0)
        _in_range("frequency_penalty", self.frequency_penalty, low=-2.0, high=2.0)
        for _, bias in self.logit_bias:
            _in_range("logit_bias", bias, low=-MAX_BIAS, high=MAX_BIAS)
        if not 0.0 < self.top_p <= 1.0:
            raise RequestRefused(
                f"top_p must be above 0 and at most 1, not {self.top_p}", param="top_p"
            )
        if not (self.repetition_penalty > 0.0 and math.isfinite(self.repetition_penalty)):
            raise RequestRefused(
                f"repetition_penalty must be above 0, not {self.repetition_penalty}",
                param="repetition_penalty",
            )
        for count in (self.logprobs, self.prompt_logprobs):
            if count is not None:
                _in_range("logprobs", count, low=0, high=MAX_LOGPROBS)
        if len(self.stop) > MAX_STOP_STRINGS or any(not text for text in self.stop):
            raise RequestRefused(
                f"stop takes at most {MAX_STOP_STRINGS} strings, none of them empty", param="stop"
            )

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken each time."""
        return self.temperature == 0.0

    @property
    def has_penalties(self) -> bool:
        """Whether earlier tokens change the logits."""
        return (
            self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
            or self.repetition_penalty != 1.0
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheContext:
    """Which cached prefixes a request may read and what it may leave behind.

    `root` is the cache root made from the request's authenticated identity
    (`fleetward_api.cache_key.cache_root`); None reads and writes no cache. `owner` names every
    scope by which its blocks are purged, with that scope's floor in the identity. `store` False may
    read its scope's prefixes and leaves nothing in the index; the bytes of its blocks are
    overwritten when it ends. A TTL of None means no limit.
    `retention_class` names the class that these came from, for the books. `public_root` is that of
    the declared public prefixes, which it reads too; None where it reads none. `uncached` is why
    rules leave it without a root.
    """

    root: bytes | None
    owner: Owner
    store: bool = True
    idle_ttl_ms: int | None = None
    max_ttl_ms: int | None = None
    retention_class: str = ""
    public_root: bytes | None = None
    uncached: WhyUncached | None = None

    def limited(self, *, idle_ttl_ms: int | None, max_ttl_ms: int | None) -> CacheContext:
        """The same with TTLs no longer than these."""
        return replace(
            self,
            idle_ttl_ms=_shorter(self.idle_ttl_ms, idle_ttl_ms),
            max_ttl_ms=_shorter(self.max_ttl_ms, max_ttl_ms),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One sequence to complete. `arrival` is in seconds of the engine's monotonic clock.

    `choice` tells the choices of one call apart, so that a seed over `n` choices or a list of
    prompts does not draw the same numbers for each. `fork_of` names another request here with the
    same prompt and cache context: this one waits until that one's prompt is computed and cached.
    `grammar` is what the text must follow; it ends where the grammar does.
    `priority` and `weight` (at least 1) are its tenant's, for the disciplines that look at them
    (`fleetward_engine.scheduling`). At `deadline`, on the clock of `arrival`, it ends unfinished.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    cache: CacheContext
    arrival: float
    choice: int = 0
    fork_of: str = ""
    grammar: Grammar | None = None
    priority: int = 0
    weight: int = 1
    deadline: float = math.inf

    @property
    def reads_cache(self) -> bool:
        """Whether it may use cached KV: not to learn how likely its prompt is, which needs all."""
        return self.sampling.prompt_logprobs is None


def _shorter(first: int | None, second: int | None) -> int | None:
    return min((limit for limit in (first, second) if limit is not None), default=None)


def _in_range(name: str, value: float, *, low: float, high: float) -> None:
    # Written so that NaN, which fails every comparison, is refused too.
    if not low <= value <= high:
        raise RequestRefused(f"{name} must be between {low} and {high}, not {value}", param=name)
