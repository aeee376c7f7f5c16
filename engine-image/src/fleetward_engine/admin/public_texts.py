"""From a bundle's public texts to what the engine keeps of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from fleetward_api.cache_key import public_root
from fleetward_engine.admin.policy import PolicyInForce
from fleetward_engine.engine import Engine
from fleetward_engine.public_prefixes import Form, PublicPlan, plan_public, public_forms
from fleetward_engine.server.served_model import ServedModel
from fleetward_engine.server.service import EngineService
from fleetward_engine.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


class PublicTexts:
    """Plans the public prefixes of the policy in force, and has the engine keep them."""

    def __init__(self, service: EngineService) -> None:
        self._service = service
        self._texts: tuple[str, ...] = ()
        self._forms: tuple[Form, ...] = ()

    async def plan(self, policy: PolicyInForce) -> PublicPlan:
        """What fits of the policy's texts; nothing while the model is not loaded.

        Texts are encoded beside the event loop, and only when they are others than before.
        """
        model = self._service.model
        texts = tuple(prefix.text for prefix in policy.bundle.shared_prefixes)
        if model is None or not model.config.enable_prefix_caching:
            return PublicPlan()
        if texts != self._texts:
            self._forms = await asyncio.to_thread(_encode, model.tokenizer, texts)
            self._texts = texts
        plan = plan_public(
            self._forms,
            block_size=model.block_size,
            num_blocks=model.kv_blocks,
            # One token goes on from it.
            max_tokens=model.limits.context_tokens - 1,
        )
        if plan.left_out:
            logger.warning(
                "%d blocks of public prefixes find no room and are not shared", plan.left_out
            )
        return plan

    async def declare(self, policy: PolicyInForce, plan: PublicPlan) -> None:
        """Have the engine keep exactly this, under the policy's epoch."""
        model = self._service.model
        if model is None:
            return
        root = root_of(policy, model)

        def declare(engine: Engine) -> None:
            engine.public.declare(root, plan)
            engine.governance.overwrite_dirty()

        await self._service.loop.call(declare)


def root_of(policy: PolicyInForce, model: ServedModel) -> bytes:
    """The root of public blocks under a policy's epoch."""
    return public_root(policy.secret, model.fingerprint)


def _encode(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[Form, ...]:
    return tuple(form for text in texts for form in public_forms(tokenizer, text))
