"""A ConfigMap mounted in a folder as the kubelet does it: all entries change at once."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

DATA = "..data"


class KubeletMount:
    """Each entry is a link through `..data`, which is pointed at a new folder per version."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._version = 0
        self.entries: Mapping[str, str] = {}

    def put(self, data: Mapping[str, str]) -> None:
        """Make the folder hold exactly these entries."""
        self._version += 1
        fresh = self._folder / f"..{self._version}"
        fresh.mkdir()
        for name, text in data.items():
            (fresh / name).write_text(text)
        before = (self._folder / DATA).resolve()
        self._point(DATA, fresh.name)
        for name in data:
            if not (self._folder / name).is_symlink():
                self._point(name, f"{DATA}/{name}")
        for path in self._folder.iterdir():
            if not path.name.startswith("..") and path.name not in data:
                path.unlink()
        if before != self._folder / DATA:
            shutil.rmtree(before)
        self.entries = data

    def _point(self, name: str, target: str) -> None:
        link = self._folder / f"..new-{name}"
        link.symlink_to(target)
        link.replace(self._folder / name)
