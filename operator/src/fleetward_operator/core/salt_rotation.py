"""When the secret behind all cache keys is due for its next rotation.

One secret keys all cache of a release, so it turns as often as the strictest policy asks: the
shortest `saltRotation` of any policy that a service follows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from fleetward_api.quantity import parse_duration
from fleetward_operator.core.policy import PolicyChoice

AHEAD_S = 300.0
"""An epoch made later than this from now was made under a clock that was wrong."""

Due = Literal["nothing", "date", "rotate"]
"""Leave the epoch, note that it counts from now, or make the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """The policy that decides, as `namespace/name`, and its time, in its words and in seconds."""

    policy: str
    every: str
    every_s: float


def shortest_rotation(choices: Iterable[tuple[str, PolicyChoice]]) -> Rotation | None:
    """Of the policies that services follow, the one that wants the shortest time; None if none.

    Args:
        choices: the namespace of each service and its policy.
    """
    wanted = [
        Rotation(
            policy=f"{namespace}/{choice.name}",
            every=choice.spec.salt_rotation,
            every_s=parse_duration(choice.spec.salt_rotation) / 1000,
        )
        for namespace, choice in choices
        if choice.missing is None and choice.spec.salt_rotation is not None
    ]
    return min(wanted, key=lambda one: (one.every_s, one.policy), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstSight:
    """An epoch as this process first saw it; from then on its age grows by the monotonic clock.

    So a wall clock that jumps while an operator leads neither rotates nor puts a rotation off.

    Attributes:
        number: of the epoch.
        age_s: how old it was then, by the wall clock; below zero when that was behind its maker's.
        at: monotonic seconds.
    """

    number: int
    age_s: float
    at: float


def decide_rotation(seen: FirstSight, *, every_s: float, monotonic: float) -> Due:
    """What to do about an epoch that is to live for `every_s` seconds."""
    if seen.age_s < -AHEAD_S:
        return "date"
    return "rotate" if seen.age_s + monotonic - seen.at >= every_s else "nothing"
