"""The isolation probe: an engine tries its own cache with made-up identities and tells what it saw.

Body and answer of `POST /isolation-probe` on the admin port, and what the answer proves. The engine
reports facts; the operator judges them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field

from fleetward_api.canonical import AnswerModel, Count, Name, OptionalName, WireModel

ISOLATION_PROBE_PATH: Final = "/isolation-probe"
MAX_LOOKS: Final = 16

NotRun = Literal["Busy", "TooSmall", "PolicyChanged", "RequestFailed"]
"""Why a probe did not run to its end: no room in its time, a context or a tenant's share below a
block and two tokens, another bundle came meanwhile, the model failed on it."""


class ProbeOrder(WireModel):
    """Body of `POST /isolation-probe`. `deadline_ms`: for the whole probe, its purge included."""

    deadline_ms: Annotated[Count, Field(ge=1)]


class ProbeLook(AnswerModel):
    """One request of the probe, all with the same prompt.

    Attributes:
        identity: who asked, in words.
        may_reuse: whether what was asked before it is of its own scope.
        cached_tokens: tokens of the prompt that it got from the cache.
    """

    identity: Name
    may_reuse: bool
    cached_tokens: Count


class ProbeReport(AnswerModel):
    """Answer of `POST /isolation-probe`.

    Attributes:
        bundle_digest: of the bundle that was in force all the while.
        caching: whether the engine reuses anything at all.
        not_run: a `NotRun` or what a later engine says; `""` when it ran to its end.
        prompt_tokens: length of the prompt.
        looks: in the order in which they were made.
        left: what was still found of the probe after its purge: keys, index entries and blocks.
    """

    pod_uid: Name
    bundle_digest: OptionalName = ""
    caching: bool = True
    not_run: OptionalName = ""
    prompt_tokens: Count = 0
    looks: Annotated[tuple[ProbeLook, ...], Field(max_length=MAX_LOOKS)] = ()
    left: Count = 0


ProbeVerdict = Literal["Proved", "Failed", "NotProved"]


@dataclass(frozen=True, slots=True)
class ProbeJudgement:
    """What a report proves, and why in words that two equal reports share."""

    verdict: ProbeVerdict
    words: str


def judge_probe(report: ProbeReport) -> ProbeJudgement:
    """What a probe proves.

    A hit of a scope that may not reuse, or anything left, is a failure whatever else was seen. It
    is a proof only with both halves: where caching is on, an own scope that hits and others that
    miss; an engine that never finds anything would pass the second half alone.
    """
    crossed = [look for look in report.looks if not look.may_reuse and look.cached_tokens]
    if crossed:
        told = "; ".join(
            f"{look.identity} found {look.cached_tokens} of {report.prompt_tokens} tokens"
            for look in crossed
        )
        return ProbeJudgement("Failed", f"reuse crossed a scope: {told}")
    if report.left:
        # How many is not told: words that change at each probe would be written at each probe.
        return ProbeJudgement("Failed", "the probe's blocks or keys were found after its purge")
    if report.not_run:
        return ProbeJudgement("NotProved", _NOT_RUN.get(report.not_run, report.not_run))
    own = [look for look in report.looks if look.may_reuse]
    if not own or len(own) == len(report.looks):
        return ProbeJudgement("NotProved", "its report lacks a half of the probe")
    if report.caching and not all(look.cached_tokens for look in own):
        words = "its own scope found nothing again, so that a miss is no proof"
        return ProbeJudgement("NotProved", words)
    return ProbeJudgement("Proved", "")


_NOT_RUN: Final[dict[str, str]] = {
    "Busy": "it had no room for a probe in time",
    "TooSmall": "its context or its tenants' share is too small for a probe",
    "PolicyChanged": "its policy changed during the probe",
    "RequestFailed": "its model failed on the probe",
}
