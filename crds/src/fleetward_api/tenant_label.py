"""Tenant names as label values of metrics, in the gateway and in engines."""

from __future__ import annotations

import hashlib
from typing import Final

MAX_TENANT_LABELS: Final = 100
OTHER: Final = "other"


class TenantLabel:
    """Tenant names as label values, bounded: those beyond the first hundred share a few buckets.

    A bucket keeps one tenant's burst recognisable without a time series for each tenant.
    """

    def __init__(self, limit: int = MAX_TENANT_LABELS) -> None:
        self._limit = limit
        self._named: set[str] = set()

    def of(self, tenant: str) -> str:
        """The label value of a tenant; "" stays "" (nobody was authenticated)."""
        if not tenant or tenant in self._named:
            return tenant
        if len(self._named) < self._limit:
            self._named.add(tenant)
            return tenant
        return f"{OTHER}-{hashlib.sha256(tenant.encode()).digest()[0] % 8}"
