"""Figures of an engine that is killed, starved, cut off or fed nonsense."""

from e2e.figures.figure import Comparison, Figure


def _figure(
    name: str, promise: str, comparison: Comparison, target: float, unit: str, number: int
) -> Figure:
    return Figure(name, promise, comparison, target, unit, "make chaos", promises=(number,))


FIGURES: tuple[Figure, ...] = (
    _figure(
        "engine-stream-end-seconds", "a step fails: every answer ends in-band", "<=", 2, "s", 30
    ),
    _figure("engine-unready-seconds", "a step fails: readiness is off", "<=", 2, "s", 30),
    _figure("engine-exit-seconds", "a step fails: the process exits non-zero", "<=", 10, "s", 30),
    _figure("hang-detected-seconds", "a step hangs: the liveness probe fails", "<=", 60, "s", 31),
    _figure("hang-false-alarms", "saturated or paused: liveness never fails", "==", 0, "", 31),
    _figure("drop-clients-left", "left of 1,000 connect-and-drop clients", "==", 0, "", 32),
    _figure("drop-freed-seconds", "clients leave: slots and KV are free", "<=", 1, "s", 32),
    _figure("admin-half-applied", "admin calls cut off at any byte: changed", "==", 0, "", 48),
)
