"""Whether isolation holds in a service's engines, from what its probes showed.

Engines that take requests are judged: one that takes none can share nothing. A proof is about the
rules and the engines, so it stands in the status for whoever leads next (`isolationSubject`).
What was seen broken stands there, too, until every engine is proved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fleetward_api.canonical import canonical_bytes, digest
from fleetward_api.conditions import find_condition
from fleetward_operator.core.observed import ServiceObserved
from fleetward_operator.core.pods import PodSeen
from fleetward_operator.core.probe_seen import UNSUPPORTED
from fleetward_operator.core.service_facts import Verdict, fails, holds, named_engines, unknown

NAMED: Final = 3


def decide_isolation_verified(seen: ServiceObserved) -> Verdict:
    """Whether each engine proved which pod it is, holds today's floors, and separates scopes.

    Only an admitted pod can ack, and an ack of the wanted bundle is an ack of its floors.
    """
    if not seen.running:
        return holds("NoReplica", "No engine runs, so nothing can be shared.")
    broken = [pod for pod in seen.running if pod.uid in seen.probes and _is_broken(seen, pod)]
    if broken:
        return fails("IsolationBroken", _told(seen, broken))
    standing = find_condition(seen.status.conditions, "IsolationVerified")
    if standing is not None and standing.reason == "IsolationBroken" and _awaits_proof(seen):
        return fails("IsolationBroken", standing.message)
    unproved = [pod for pod in seen.running if pod.uid not in seen.acks]
    if unproved:
        return fails("WaitingForProof", f"No proof yet from {named_engines(seen, unproved)}.")
    behind = [pod for pod in seen.running if not seen.has_acked(pod)]
    if behind:
        words = f"Older floors are in force in {named_engines(seen, behind)}."
        return fails("FloorsDiffer", words)
    return _probed(seen)


def isolation_subject(seen: ServiceObserved) -> str | None:
    """What a proof of this moment is about: the rules in force, and each engine's process."""
    named = seen.bundle_name
    if named is None or not seen.ready:
        return None
    engines = sorted([pod.uid, pod.container.restarts] for pod in seen.ready)
    return digest(canonical_bytes({"rules": named.rules, "engines": engines}))


def _probed(seen: ServiceObserved) -> Verdict:
    if not seen.ready:
        return unknown("Probing", "No engine takes requests yet.")
    open_ = [pod for pod in seen.ready if not _is_proved(seen, pod)]
    if not open_ or _was_proved(seen):
        return holds(
            "Verified",
            f"{len(seen.ready)} engine(s) proved their pods, hold the floors, and were seen to "
            "reuse cache within a scope and not across.",
        )
    tried = [pod for pod in open_ if pod.uid in seen.probes]
    if not tried:
        return unknown("Probing", f"{len(open_)} of {len(seen.ready)} engine(s) are to be probed.")
    old = all(seen.probes[pod.uid].last == UNSUPPORTED for pod in tried)
    return unknown("ProbeUnsupported" if old else "NotProved", _told(seen, tried))


def _is_broken(seen: ServiceObserved, pod: PodSeen) -> bool:
    return seen.probes[pod.uid].is_broken


def _is_proved(seen: ServiceObserved, pod: PodSeen) -> bool:
    probe, named = seen.probes.get(pod.uid), seen.bundle_name
    return probe is not None and named is not None and probe.proves(named.rules)


def _awaits_proof(seen: ServiceObserved) -> bool:
    """Whether an engine that can be probed has not been proved, or none takes requests yet."""
    known = (seen.probes.get(pod.uid) for pod in seen.ready if not _is_proved(seen, pod))
    return not seen.ready or any(one is None or one.last != UNSUPPORTED for one in known)


def _was_proved(seen: ServiceObserved) -> bool:
    """Whether a leader before us proved these very engines under these very rules."""
    subject = seen.status.isolation_subject
    return subject is not None and subject == isolation_subject(seen)


def _told(seen: ServiceObserved, pods: Sequence[PodSeen]) -> str:
    told = [f"engine {pod.name}: {seen.probes[pod.uid].standing.words}" for pod in pods[:NAMED]]
    more = len(pods) - NAMED
    words = ". ".join(told) + (f" (and {more} more engines)" if more > 0 else "")
    return f"{words[0].upper()}{words[1:]}."
