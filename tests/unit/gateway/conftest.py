"""A running gateway and engines behind it, per test."""

from __future__ import annotations

from tests.support.gateway_fixtures import engine, gateway, second_engine, served

__all__ = ["engine", "gateway", "second_engine", "served"]
