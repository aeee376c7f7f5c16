"""From a bundle's tiers and classes to what may enter host memory."""

from __future__ import annotations

from fleetward_api.bundle import PolicyBundle
from fleetward_engine.host_tier.rules import HostRules


def host_rules(bundle: PolicyBundle) -> HostRules:
    """What a bundle lets into host memory."""
    host = bundle.tiers.host
    if host is None:
        return HostRules()
    classes = bundle.retention.classes.items()
    return HostRules(
        size=host.size_bytes,
        classes=frozenset(name for name, one in classes if one.store == "DeviceAndHost"),
        encrypt=host.encrypt,
    )
