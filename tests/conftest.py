"""Settings of the whole test suite."""

from __future__ import annotations

from hypothesis import settings

# A test says what is right, not how fast: a busy machine must not turn it red.
settings.register_profile("fleetward", deadline=None)
settings.load_profile("fleetward")
