"""What isolation probes of one engine showed so far, and when the next one is due."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from fleetward_api.bundle import PolicyBundle
from fleetward_api.canonical import canonical_bytes, digest
from fleetward_api.floors import Floors
from fleetward_api.isolation_probe import ProbeJudgement

RETRY_S: Final = 30.0
"""After this long an engine that proved nothing, or failed, is probed again."""
UNSUPPORTED: Final = ProbeJudgement("NotProved", "its version is from before the isolation probe")
UNANSWERED: Final = ProbeJudgement("NotProved", "it did not answer the probe")
CHANGED: Final = ProbeJudgement("NotProved", "its policy changed during the probe")


@dataclass(frozen=True, slots=True)
class BundleName:
    """A bundle by its digest and its `rules_digest`: made once, as floors may be thousands."""

    digest: str
    rules: str

    @classmethod
    def of(cls, bundle: PolicyBundle) -> BundleName:
        """The name of this bundle."""
        return cls(bundle.digest, rules_digest(bundle))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSeen:
    """The last probe of one engine process, and the verdict that stands.

    Attributes:
        rules: `rules_digest` of the bundle that the standing verdict is about.
        standing: what was shown last; a probe that showed nothing does not take it back.
        bundle: digest of the bundle that the last probe was asked under.
        last: what the last probe showed.
        at: when it ended, monotonic seconds.
        proved_at: when a probe last proved the standing verdict, epoch seconds; None if none did.
    """

    rules: str
    standing: ProbeJudgement
    bundle: str
    last: ProbeJudgement
    at: float
    proved_at: float | None

    def proves(self, rules: str) -> bool:
        """Whether the engine was seen to separate what the rules of this digest separate."""
        return self.standing.verdict == "Proved" and self.rules == rules

    @property
    def is_broken(self) -> bool:
        """Whether it was seen not to, and not to be mended since."""
        return self.standing.verdict == "Failed"


def rules_digest(bundle: PolicyBundle) -> str:
    """Digest of what decides who may reuse what: all but the numbers that purges raise."""
    rules = bundle.model_copy(update={"generation": 0, "floors": Floors()})
    return digest(canonical_bytes(rules))


def remember_probe(
    before: ProbeSeen | None,
    bundle: PolicyBundle,
    shown: ProbeJudgement,
    *,
    at: float,
    wall: float,
) -> ProbeSeen:
    """What is known after one more probe, asked under this bundle; `at`, `wall`: when it ended.

    A failure stands until a probe shows the opposite, under whatever rules; a proof stands for its
    own rules while later probes show nothing, as of an engine that is busy.
    """
    fresh = ProbeSeen(
        rules=rules_digest(bundle),
        standing=shown,
        bundle=bundle.digest,
        last=shown,
        at=at,
        proved_at=wall if shown.verdict == "Proved" else None,
    )
    if before is None or shown.verdict != "NotProved":
        return fresh
    if before.is_broken or before.proves(fresh.rules):
        return replace(
            fresh, rules=before.rules, standing=before.standing, proved_at=before.proved_at
        )
    return fresh


def probe_due_in(
    seen: ProbeSeen | None, bundle: BundleName, *, now: float, interval_s: float
) -> float:
    """Seconds until an engine is to be probed, 0 for now, infinity for not before there is news.

    `now` in monotonic seconds; `interval_s` between a proof and the next probe, 0 repeats none.
    """
    is_new = seen is not None and seen.bundle != bundle.digest
    if seen is None or (is_new and seen.rules != bundle.rules):
        return 0.0
    if seen.last == UNSUPPORTED:
        # Only another process could answer otherwise, and that one has not been seen yet.
        return math.inf
    # Higher floors change no rule: purges that follow each other share a probe.
    is_settled = seen.last.verdict == "Proved" and not is_new
    pause = interval_s or math.inf if is_settled else RETRY_S
    return max(0.0, seen.at + pause - now)
