"""The conditions of an InferenceService, with every reason and what it means."""

from __future__ import annotations

from typing import Final

from fleetward_api.resources.condition import ConditionType, Reason

NOT_OBSERVED: Final = Reason("NotObserved", "The operator has not looked at the object yet.")
INVALID: Final = Reason(
    "InvalidSpec",
    "The spec breaks a rule of this release (it was stored under an older schema); "
    "the message quotes the rule.",
)
_IDLE: Final = Reason("Idle", "Zero replicas are wanted, and none runs.")

AUTHOR_FAULTS: Final = (
    INVALID,
    Reason("NameTaken", "An older service holds the same served name; the message names it."),
    Reason("PolicyNotFound", "spec.cachePolicyRef names a policy that does not exist."),
    Reason("ImageNotAllowed", "spec.engine.image is outside the allow-list of the release."),
    Reason("NamespaceNotAllowed", "The release does not admit services in this namespace."),
    Reason("ChildForeign", "An object of a name that a child needs belongs to somebody else."),
    Reason("ChildRefused", "The API server refused a child; the message has its words."),
)
"""What only the author of a manifest, or of a neighbouring one, can mend."""

POD_TROUBLES: Final = (
    Reason("Unschedulable", "No node takes a pod; the message has the scheduler's words."),
    Reason("ImagePullFailed", "A node cannot get the image; the message has the kubelet's words."),
    Reason("EngineNotStarting", "A container cannot start; the message has the kubelet's words."),
    Reason("EngineCrashing", "The engine ends again and again; the message says how."),
    Reason("ModelFailed", "An engine cannot load its model; the message has the engine's words."),
    Reason("MemberUnreachable", "A running engine does not answer the operator."),
    Reason("MemberRefused", "An engine could not prove which pod it is, so it gets no traffic."),
)
"""What keeps a pod from serving."""

ISOLATION_BROKEN: Final = Reason(
    "IsolationBroken",
    "A probe of a replica reused cache across scopes, or outlived its purge; the message says.",
)
_STARTING: Final = Reason("Starting", "Pods exist and are not ready yet.")
_PUSHING: Final = Reason("PushingPolicy", "Engines have yet to acknowledge the cache policy.")

SERVICE_CONDITIONS: Final = (
    ConditionType(
        "InferenceService",
        "Ready",
        "Does the service do what its spec asks?",
        (
            Reason("Serving", "The wanted replicas take requests under the current policy."),
            Reason("Idle", "Zero replicas are wanted, and none runs: that is what was asked."),
        ),
        (_STARTING, _PUSHING, *AUTHOR_FAULTS, *POD_TROUBLES),
        (NOT_OBSERVED,),
    ),
    ConditionType(
        "InferenceService",
        "Progressing",
        "Is a change on its way?",
        (
            _STARTING,
            Reason("RollingOut", "Pods are being replaced by those of the current spec."),
            Reason("Scaling", "Pods are being added or removed."),
        ),
        (
            Reason("Complete", "The pods are those of the current spec."),
            *AUTHOR_FAULTS,
            *POD_TROUBLES,
        ),
        (NOT_OBSERVED,),
    ),
    ConditionType(
        "InferenceService",
        "Degraded",
        "Does it serve with less than was asked?",
        (
            ISOLATION_BROKEN,
            Reason("FewerReplicas", "Fewer replicas take requests than are wanted."),
            *POD_TROUBLES,
        ),
        (
            Reason("AsDesired", "Everything that was asked for takes requests."),
            Reason("NotServing", "It does not serve at all: see Ready."),
            _IDLE,
        ),
        (NOT_OBSERVED,),
    ),
    ConditionType(
        "InferenceService",
        "Reconciling",
        "Is the operator, or the cluster for it, still at work?",
        (
            Reason("ApplyingChildren", "Children are being written."),
            _STARTING,
            _PUSHING,
        ),
        (
            Reason("Settled", "Nothing is left to do."),
            Reason("Stalled", "Nothing can be done until somebody acts: see Stalled."),
        ),
        (NOT_OBSERVED,),
    ),
    ConditionType(
        "InferenceService",
        "Stalled",
        "Does it need somebody to act?",
        (*AUTHOR_FAULTS, *POD_TROUBLES),
        (Reason("NotStalled", "Nobody needs to act."),),
        (NOT_OBSERVED,),
    ),
    ConditionType(
        "InferenceService",
        "ModelLoaded",
        "Is the model in memory?",
        (
            Reason(
                "Loaded", "Every ready replica has loaded the model; its digests are in status."
            ),
            Reason(
                "Simulated", "The simulated runner serves: there is no model, answers are noise."
            ),
        ),
        (
            Reason("Loading", "Replicas are loading the model."),
            Reason("ModelFailed", "An engine cannot load its model; the message has its words."),
            Reason("DigestsDiffer", "Replicas loaded different files; the message names them."),
            _IDLE,
        ),
        (
            NOT_OBSERVED,
            Reason("NoReplica", "No replica can be asked."),
        ),
    ),
    ConditionType(
        "InferenceService",
        "RouteReady",
        "Does the gateway route to it?",
        (Reason("Routed", "The gateway lists the model and has a replica to send requests to."),),
        (
            Reason("NobodyAllowed", "spec.access.tenantSelector is absent, so nobody may call it."),
            Reason("NameTaken", "An older service holds the same served name."),
            Reason("NoEndpoint", "No replica takes requests; the gateway answers 503."),
            INVALID,
            _IDLE,
        ),
        (NOT_OBSERVED,),
    ),
    ConditionType(
        "InferenceService",
        "ScalingActive",
        "Does Fleetward set the number of replicas?",
        (Reason("FixedReplicas", "The number is spec.scaling.minReplicas."),),
        (
            Reason("External", "spec.scaling.mode is External: somebody else sets it."),
            INVALID,
        ),
        (NOT_OBSERVED,),
    ),
    ConditionType(
        "InferenceService",
        "CachePolicyEnforced",
        "Is the current cache policy in force in every replica?",
        (
            Reason("AllAcked", "Every replica acknowledged it; the message names the generation."),
            Reason("NoReplica", "No replica runs, so that nothing is kept."),
        ),
        (
            Reason("WaitingForAcks", "Some replica has yet to acknowledge it."),
            Reason("PolicyNotFound", "spec.cachePolicyRef names a policy that does not exist."),
            Reason("PolicyInvalid", "The CachePolicy breaks a rule of this release."),
            INVALID,
        ),
        (NOT_OBSERVED,),
    ),
    ConditionType(
        "InferenceService",
        "IsolationVerified",
        "Is every replica known to be ours, and seen to separate what the policy separates?",
        (
            Reason(
                "Verified",
                "Every replica proved its pod, reports the floors in force, and was seen to reuse "
                "cache within a scope and not across.",
            ),
            Reason("NoReplica", "No replica runs, so that nothing can be shared."),
        ),
        (
            ISOLATION_BROKEN,
            Reason("WaitingForProof", "Some replica has yet to prove which pod it is."),
            Reason("FloorsDiffer", "Some replica reports older floors than those in force."),
            INVALID,
        ),
        (
            NOT_OBSERVED,
            Reason("Probing", "A replica that takes requests has yet to be probed."),
            Reason("NotProved", "A probe could not show it; the message says why. It is repeated."),
            Reason("ProbeUnsupported", "An engine is from before the isolation probe."),
        ),
    ),
)
