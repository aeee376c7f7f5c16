"""The engine's version, as status, receipts and evidence show it."""

from __future__ import annotations

from importlib import metadata


def engine_version() -> str:
    """This distribution's version."""
    return metadata.version("fleetward-engine")
