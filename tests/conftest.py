"""Settings of the whole test suite."""

from __future__ import annotations

from hypothesis import settings

from tests.support.tidy_loop import TidyLoop

# A test says what is right, not how fast: a busy machine must not turn it red.
settings.register_profile("fleetward", deadline=None)
settings.load_profile("fleetward")


def pytest_asyncio_loop_factories(config: object, item: object) -> dict[str, type[TidyLoop]]:
    """The loops of all asynchronous tests."""
    return {"tidy": TidyLoop}
