"""Our own writes, until the watch has caught up."""

from __future__ import annotations

from fleetward_operator.edges.own_writes import FORGET_AFTER_S, OwnWrites


def test_own_writes_are_seen_before_the_watch_tells_them() -> None:
    now = [0.0]
    written = OwnWrites(lambda: now[0])
    old = {"metadata": {"uid": "a", "resourceVersion": "5"}}
    new = {"metadata": {"uid": "a", "resourceVersion": "7"}}
    written.remember("Pod", "x", new)
    assert written.newest("Pod", "x", old) is new
    assert written.newest("Pod", "x", None) is new
    newer = {"metadata": {"uid": "a", "resourceVersion": "8"}}
    assert written.newest("Pod", "x", newer) is newer
    written.remember("Pod", "x", new)
    written.saw_deletion("Pod", "x", "b")
    assert written.newest("Pod", "x", None) is new
    written.saw_deletion("Pod", "x", "a")
    assert written.newest("Pod", "x", None) is None


def test_an_own_write_that_the_watch_never_shows_is_forgotten() -> None:
    now = [0.0]
    written = OwnWrites(lambda: now[0])
    written.remember("Pod", "x", {"metadata": {"uid": "a", "resourceVersion": "7"}})
    now[0] = FORGET_AFTER_S + 1
    assert written.newest("Pod", "x", None) is None
