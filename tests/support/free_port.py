"""A port to listen on later; see `e2e.cluster.ports`."""

from e2e.cluster.ports import free_port

__all__ = ["free_port"]
