"""The engine's self-check at idle: when nothing runs, nothing is held."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleetward_engine.outputs import EngineStats

KINDS = ("request", "sequence", "kv_block", "kv_block_reference")


@dataclass(frozen=True, slots=True)
class Leaks:
    """``grown``: how much more of each kind is held for nobody than at the last look.

    ``lost``: requests whose answer is awaited and that the engine does not have.
    """

    grown: Mapping[str, int]
    lost: tuple[str, ...]


class LeakWatch:
    """Looks at the books while the engine is idle; remembers what it has told."""

    def __init__(self) -> None:
        self._told = dict.fromkeys(KINDS, 0)
        self._awaited: frozenset[str] = frozenset()

    def look(self, stats: EngineStats, awaited: Iterable[str]) -> Leaks:
        """Compare an idle engine's numbers, and the ids of requests still awaited, with nothing.

        A request may have been handed in since the engine was found idle: only one that was
        awaited at the last look too is lost.
        """
        now = frozenset(awaited)
        lost = tuple(sorted(now & self._awaited))
        self._awaited = now
        held = {
            "request": len(lost),
            "sequence": stats.running + stats.waiting,
            "kv_block": stats.kv_blocks_used,
            "kv_block_reference": stats.kv_block_references,
        }
        grown = {kind: held[kind] - self._told[kind] for kind in KINDS}
        self._told = {**held, "request": 0}
        return Leaks({kind: more for kind, more in grown.items() if more > 0}, lost)
