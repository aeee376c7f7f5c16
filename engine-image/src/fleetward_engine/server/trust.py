"""The public keys this engine trusts, from the mounted folder, read again when it changes."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from fleetward_api.errors import KeyMalformed
from fleetward_api.keys import SealingPublicKey, VerifyKey

logger = logging.getLogger(__name__)

RECHECK_S = 1.0
FILES = ("operator.pub", "sealing.pub", "gateway.pub")
OVERLAP_FILE = "gateway-overlap.pub"
"""A second key of the gateways while theirs is being rotated; absent at other times."""


class TrustMissing(Exception):
    """No usable set of public keys has been mounted yet."""


@dataclass(frozen=True, slots=True)
class Trust:
    """Who may give orders, whom to seal to, and who vouches for callers (two during a rotation)."""

    operator: VerifyKey
    sealing: SealingPublicKey
    gateways: tuple[VerifyKey, ...]


Stamp = tuple[tuple[int, int] | None, ...]


class TrustStore:
    """The trust folder, looked at no more than once a second.

    A folder that becomes unreadable keeps the last good keys in force: a half-written update must
    not lock everybody out.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._trust: Trust | None = None
        self._stamp: Stamp | None = None
        self._checked_at = float("-inf")
        self._fault = f"{folder} has not been read yet"

    def current(self, now: float) -> Trust:
        """The keys in force; ``now`` in monotonic seconds.

        Raises:
            TrustMissing: nothing usable has been read since the start.
        """
        if now - self._checked_at >= RECHECK_S:
            self._checked_at = now
            self._refresh()
        if self._trust is None:
            raise TrustMissing(self._fault)
        return self._trust

    def _refresh(self) -> None:
        try:
            stamp = self._look()
            if stamp == self._stamp:
                return
            self._trust = read_trust(self._folder)
            self._stamp = stamp
        except (OSError, ValueError, KeyMalformed) as fault:
            if str(fault) != self._fault:
                logger.warning("cannot read the trust folder: %s", fault)
            self._fault = str(fault)

    def _look(self) -> Stamp:
        # stat follows the kubelet's symlink swap: a new target is a new inode.
        marks: list[tuple[int, int] | None] = [_mark(self._folder / name) for name in FILES]
        try:
            marks.append(_mark(self._folder / OVERLAP_FILE))
        except FileNotFoundError:
            marks.append(None)
        return tuple(marks)


def _mark(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_ino


def read_trust(folder: Path) -> Trust:
    """Read the public keys.

    Raises:
        OSError: a file other than that of the overlap is missing.
        ValueError, KeyMalformed: a file holds no base64 of 32 raw key bytes.
    """
    operator, sealing, gateway = ((folder / name).read_text("ascii").strip() for name in FILES)
    return Trust(
        operator=VerifyKey.from_b64(operator),
        sealing=SealingPublicKey.from_b64(sealing),
        gateways=(VerifyKey.from_b64(gateway), *_overlap(folder)),
    )


def _overlap(folder: Path) -> tuple[VerifyKey, ...]:
    try:
        text = (folder / OVERLAP_FILE).read_text("ascii")
    except FileNotFoundError:
        return ()
    return (VerifyKey.from_b64(text.strip()),)
