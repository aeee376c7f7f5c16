"""Figures of a gateway between dying backends and hostile clients."""

from e2e.figures.figure import Comparison, Figure

_COMMAND = "make chaos"


def _figure(
    name: str, promise: str, target: float, unit: str, *promises: int, how: Comparison = "=="
) -> Figure:
    return Figure(name, promise, how, target, unit, _COMMAND, promises)


FIGURES: tuple[Figure, ...] = (
    _figure("gateway-lost-requests", "Requests lost among dying engines", 0, "requests", 26),
    _figure("smuggled-requests", "Requests framed two ways that were taken", 0, "requests", 37),
    _figure("bombs-memory-mib", "Memory that a body bomb costs", 32, "MiB", 36, how="<="),
    _figure(
        "bombs-read-beyond-limit-kib", "Read of a body beyond its limit", 64, "KiB", 36, how="<="
    ),
    _figure("streams-2000-completed", "Of 2,000 streams at once, complete", 2000, "streams", 33),
    _figure("slow-reader-memory-mib", "Memory that 200 slow readers cost", 64, "MiB", 33, how="<="),
    _figure(
        "slow-reader-p99-ratio", "p99 between tokens beside them, over alone", 1.1, "", 33, how="<="
    ),
    _figure("spoofs-effective", "Spoofs that changed tenant or cache", 0, "of 500", 38),
    _figure(
        "config-mutations-downtime", "Requests refused under 100 broken objects", 0, "requests", 48
    ),
    _figure(
        "rotation-seconds", "Until a step of a key's rotation is in force", 60, "s", 47, how="<="
    ),
    _figure("rotation-dropped-streams", "Streams dropped while keys rotate", 0, "streams", 47),
)
