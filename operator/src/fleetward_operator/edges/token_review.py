"""Has the API server say whose token a member showed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fleetward_api.errors import AdmissionError
from fleetward_kube import KubeClient
from fleetward_operator.manifests.names import TOKEN_AUDIENCE

REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
POD_UID_EXTRA = "authentication.kubernetes.io/pod-uid"
POD_NAME_EXTRA = "authentication.kubernetes.io/pod-name"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFacts:
    """What the API server says about a token: the pod it is bound to and its service account."""

    username: str
    pod_uid: str
    pod_name: str


async def review_token(client: KubeClient, token: str, *, timeout_s: float) -> TokenFacts:
    """The facts of a token of our audience.

    Raises:
        AdmissionError: the token is not valid, or is bound to no pod.
        KubeError: the API server could not be asked.
    """
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": [TOKEN_AUDIENCE]},
    }
    # A review changes nothing in the cluster, so it needs no lease.
    answer = await client.request("POST", REVIEWS, body=body, timeout=timeout_s)
    return read_review(answer.get("status") or {})


def read_review(status: dict[str, Any]) -> TokenFacts:
    """Read a TokenReview's status. Raises `AdmissionError`."""
    if not status.get("authenticated") or TOKEN_AUDIENCE not in (status.get("audiences") or []):
        why = status.get("error") or "not authenticated"
        raise AdmissionError(f"the API server refuses the member's token: {why}", retryable=True)
    user = status.get("user") or {}
    extra = user.get("extra") or {}
    uids, names = extra.get(POD_UID_EXTRA) or [], extra.get(POD_NAME_EXTRA) or []
    if len(uids) != 1 or len(names) != 1:
        raise AdmissionError("the member's token is not bound to a pod")
    return TokenFacts(username=str(user.get("username")), pod_uid=uids[0], pod_name=names[0])
