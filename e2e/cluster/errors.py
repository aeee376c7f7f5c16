"""What can go wrong with the local cluster; every message says what to do about it.

::

    ClusterError
    ├── Unsupported        this machine cannot carry the cluster (not Linux, not root, not Debian)
    ├── Occupied           something else holds what the cluster needs (a port, another checkout)
    ├── CommandFailed      a program that was run to its end failed
    └── ProcessFailed      a program of the cluster died, or never became healthy
"""

from __future__ import annotations


class ClusterError(Exception):
    """Base of all; the command line prints it without a traceback and exits with 1."""


class Unsupported(ClusterError):
    """The machine lacks something that only its owner can give."""


class Occupied(ClusterError):
    """Another program or another checkout holds a port, a lock or a firewall chain."""


class CommandFailed(ClusterError):
    """A command that was run to its end gave a non-zero exit status."""


class ProcessFailed(ClusterError):
    """A long-running program died or did not become healthy in time."""
