"""Which steps have passed on this commit with this seed, so that a stopped run goes on."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(".local/chaos")


def state_of_the_code() -> str:
    """The commit, with `-dirty` when the checkout differs from it."""
    return subprocess.run(
        ["git", "describe", "--always", "--abbrev=40", "--dirty"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


@dataclass(frozen=True, slots=True)
class Progress:
    """The steps that passed for one state of the code and one seed."""

    path: Path

    @classmethod
    def of(cls, code: str, seed: int, *, folder: Path = FOLDER) -> Progress:
        """Where the steps of `code` under `seed` are kept."""
        return cls(folder / f"{code}-{seed}.json")

    def passed(self) -> frozenset[str]:
        """Names of the steps that need not run again."""
        return frozenset(json.loads(self.path.read_text())) if self.path.exists() else frozenset()

    def add(self, name: str) -> None:
        """Note that a step passed."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self.path.with_suffix(".tmp")
        scratch.write_text(json.dumps(sorted(self.passed() | {name})))
        scratch.replace(self.path)

    def forget(self) -> None:
        """Start over."""
        self.path.unlink(missing_ok=True)
