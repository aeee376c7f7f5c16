"""From a bundle's quota and eviction to the rules that the pool follows."""

from __future__ import annotations

from fleetward_api.bundle import PolicyBundle
from fleetward_engine.share_rules import ShareRules


def share_rules(bundle: PolicyBundle, *, public_blocks: int) -> ShareRules:
    """Who may hold how much under a bundle, and what goes first.

    `public_blocks` of the pool are set apart for the bundle's public prefixes.
    """
    return ShareRules(
        max_percent=bundle.quota.max_share_percent,
        guaranteed_percent=bundle.quota.guaranteed_share_percent,
        protected_percent=bundle.eviction.protected_share_percent,
        by_priority=bundle.eviction.policy == "Priority",
        public_blocks=public_blocks,
    )
