"""The tenants that isolation probes run as: real to the cache, and in nobody's books.

No `Tenant` can have such a name, since Kubernetes has no `~` in names. A probe reads and leaves
cache like any request; it is in no count of tenants' use, is guaranteed no share, and takes none
from others.
"""

from __future__ import annotations

from typing import Final

PROBE_TENANT: Final = "~probe"
OTHER_PROBE_TENANT: Final = "~probe-other"
PROBE_TENANTS: Final = (PROBE_TENANT, OTHER_PROBE_TENANT)


def is_probe(tenant: str) -> bool:
    """Whether this is one of the tenants that only probes run as."""
    return tenant in PROBE_TENANTS
