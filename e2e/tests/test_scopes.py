"""Users of one tenant apart on real pods, and purges that delete less than a tenant."""

from __future__ import annotations

import secrets

from e2e.tests.support import manifests
from e2e.tests.support.evidence import evidence_of, key_fingerprint
from e2e.tests.support.gateway import Gateway
from e2e.tests.support.kubectl import Cluster, Manifest, condition, eventually
from e2e.tests.support.purges import ended
from e2e.tests.support.services import ready
from fleetward_api.evidence import verify_evidence

_WORDS = "a letter to the board of a small library " * 12
"""Some blocks: the small pool of the service holds them several times over."""


def test_users_share_nothing_and_a_purge_can_be_of_one_document(
    cluster: Cluster, tenants: dict[str, Gateway], playground: str
) -> None:
    cluster.apply(
        manifests.policy("by-user", namespace=playground, namespaceDefault=True, isolation="User"),
        manifests.service("scoped", namespace=playground),
    )
    ready(cluster, "scoped", playground)
    _isolation_is_verified(cluster, playground)
    ada = tenants["ada"]
    assert _asked_twice(ada, user="ann") > 0
    assert _asked(ada, user="ben") == (0, "")
    cached, why = _asked(ada)
    assert (cached, why) == (0, "no-user")
    assert _asked_twice(ada, user="ann", tags="q3-report") > 0

    document = _purge(cluster, documentTag="q3-report", onCoarseIsolation="Refuse")
    assert "widenedTo" not in document
    assert _asked(ada, user="ann", tags="q3-report")[0] == 0
    assert _asked(ada, user="ann")[0] > 0

    # Services that share within the tenant may have let another user read what ann asked.
    user = _purge(cluster, user="ann")
    assert user["widenedTo"].startswith("tenant ada (")
    assert "quickstart/smollm2" in user["widenedTo"]
    assert _asked(ada, user="ann")[0] == 0
    assert _asked(ada, user="ben")[0] == 0


def _isolation_is_verified(cluster: Cluster, namespace: str) -> None:
    def verified() -> bool:
        service = cluster.get("fsvc", "scoped", namespace=namespace)
        return condition(service, "IsolationVerified").get("status") == "True"

    eventually(verified, what="the isolation of scoped is verified", within=90)


def _asked(gateway: Gateway, *, user: str = "", tags: str = "") -> tuple[int, str]:
    """Ask the letter; the tokens read from cache, and why the request uses none, if it does not."""
    headers = {"Fleetward-User": user, "Fleetward-Document-Tags": tags}
    answer = gateway.post(
        {
            "model": "scoped",
            "messages": [{"role": "user", "content": _WORDS}],
            "max_tokens": 4,
        },
        headers={name: value for name, value in headers.items() if value},
    )
    assert answer.status_code == 200, answer.text
    cached = int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])
    return cached, answer.headers["Fleetward-Retention"].partition("why=")[2]


def _asked_twice(gateway: Gateway, *, user: str, tags: str = "") -> int:
    """Ask for the first time, which reads nothing, and again; what the second time reads."""
    assert _asked(gateway, user=user, tags=tags) == (0, "")
    return _asked(gateway, user=user, tags=tags)[0]


def _purge(cluster: Cluster, **spec: str) -> Manifest:
    """A purge inside tenant ada that completes with evidence that holds; its status."""
    name = f"forget-part-{secrets.token_hex(3)}"
    cluster.apply(manifests.purge(name, tenant="ada", **spec))
    status = ended(cluster, name, within=90)
    assert status["phase"] == "Completed", status
    report = verify_evidence(evidence_of(cluster, name), key_fingerprint=key_fingerprint(cluster))
    assert report.ok, report.first_fault
    return status
