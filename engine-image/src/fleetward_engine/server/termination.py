"""A fatal fault's last words, left where the kubelet copies them into the pod's status."""

from __future__ import annotations

import logging
from pathlib import Path

logger = logging.getLogger(__name__)

TERMINATION_BYTES = 4096


def write_termination(path: Path, fault: str) -> None:
    """Leave the fault where the kubelet copies it into the pod's status."""
    try:
        path.write_bytes(fault.encode("utf-8", "replace")[:TERMINATION_BYTES])
    except OSError as problem:
        logger.warning("cannot write %s: %s", path, problem)
