"""An event loop that breaks off what a test left open before it closes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping


class TidyLoop(asyncio.SelectorEventLoop):
    """Aborts the transports that are still open at `close`.

    Half-open connections are what many tests are about: a peer that hangs, a client that is cut
    off. Left to the garbage collector, such a socket becomes a warning in whichever test runs
    when it is collected. That our own sessions leave nothing open is checked on a plain loop
    (`tests/unit/kube/test_sockets.py`).
    """

    def close(self) -> None:
        """Close the loop, its leftovers first."""
        if not self.is_closed():
            known: Mapping[int, asyncio.Transport] = self._transports  # type: ignore[attr-defined]
            left = [each for each in known.values() if not each.is_closing()]
            for transport in left:
                transport.abort()
            if left:
                self.run_until_complete(asyncio.sleep(0))
        super().close()
