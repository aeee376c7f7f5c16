"""The tenant that nobody is: whose account holds the cache of declared public prefixes.

No `Tenant` can have such a name, since Kubernetes has no `~` in names. So no purge of a tenant is
about these blocks, and no request but the engine's own writes under it.
"""

from __future__ import annotations

from typing import Final

from fleetward_engine.probe_tenants import is_probe

PUBLIC_TENANT: Final = "~public"


def is_listed(tenant: str) -> bool:
    """Whether this is a tenant of the fleet, and so in its books; ours are not."""
    return tenant != PUBLIC_TENANT and not is_probe(tenant)
