"""The only place of the cluster's code that reads the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where Debian keeps iptables, ipset and runc; a login shell's PATH may lack them."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment decides.

    ``cache``: folder outside any checkout for binaries, the Go toolchain and container images.
    ``environment``: the environment of every program that is started.
    """

    cache: Path
    environment: Mapping[str, str]


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read ``FLEETWARD_CACHE`` (default ``~/.cache/fleetward``) and extend ``PATH``."""
    source = dict(os.environ if environ is None else environ)
    home = Path(source.get("HOME") or "/root")
    cache = Path(source.get("FLEETWARD_CACHE") or home / ".cache" / "fleetward").absolute()
    folders = [folder for folder in source.get("PATH", "/usr/bin:/bin").split(":") if folder]
    folders += [folder for folder in SYSTEM_FOLDERS if folder not in folders]
    return Settings(cache=cache, environment={**source, "PATH": ":".join(folders)})
