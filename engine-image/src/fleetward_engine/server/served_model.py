"""What the HTTP handlers need to know of the model that is served."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fleetward_api.admin import ModelState
from fleetward_api.cache_key import ModelFingerprint
from fleetward_engine.admin.policy import PolicyInForce
from fleetward_engine.admin.shares import share_rules
from fleetward_engine.config import EngineConfig
from fleetward_engine.engine import Engine
from fleetward_engine.factory import fingerprint_of
from fleetward_engine.server.prompt import PromptEncoder, PromptLimits, longest_token_bytes
from fleetward_engine.server.sampling import Limits
from fleetward_engine.server.structure import GrammarDesk
from fleetward_engine.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A loaded model, with the threads that encode prompts and read schemas for it."""

    state: ModelState
    fingerprint: ModelFingerprint
    limits: Limits
    config: EngineConfig
    kv_blocks: int
    block_size: int
    encoder: PromptEncoder
    grammars: GrammarDesk
    tokenizer: Tokenizer

    def limits_under(self, policy: PolicyInForce) -> Limits:
        """What one request may use: the context, as far as its tenant's share of the KV goes."""
        rules = share_rules(policy.bundle, public_blocks=policy.public_blocks)
        share = rules.max_blocks(rules.tenant_blocks(self.kv_blocks)) * self.block_size
        return replace(self.limits, context_tokens=min(self.limits.context_tokens, share))

    def close(self) -> None:
        """Stop the threads that encode and compile."""
        self.encoder.close()
        self.grammars.close()


def served_model(engine: Engine, state: ModelState) -> ServedModel:
    """Collect what the handlers need to know of a loaded engine."""
    stats = engine.stats()
    pool_tokens = stats.kv_blocks_total * engine.config.block_size
    context_tokens = min(engine.max_model_len, pool_tokens)
    tokenizer = engine.tokenizer
    return ServedModel(
        state=state,
        fingerprint=fingerprint_of(state),
        limits=Limits(context_tokens=context_tokens, vocab_size=tokenizer.vocab_size),
        config=engine.config,
        kv_blocks=stats.kv_blocks_total,
        block_size=engine.config.block_size,
        tokenizer=tokenizer,
        grammars=GrammarDesk(tokenizer),
        encoder=PromptEncoder(
            tokenizer,
            PromptLimits(
                context_tokens=context_tokens,
                longest_token_bytes=longest_token_bytes(tokenizer),
            ),
        ),
    )
