"""Clients as they are: the official OpenAI one, one whose engine dies, one whose key vanishes."""

from __future__ import annotations

import openai
import pytest

from e2e.tests.support import manifests
from e2e.tests.support.gateway import Gateway
from e2e.tests.support.kubectl import Cluster, eventually
from e2e.tests.support.services import pods_of, ready


def test_the_official_client_streams(demo_client: openai.OpenAI, demo_model: str) -> None:
    chunks = list(
        demo_client.chat.completions.create(
            model=demo_model,
            messages=[{"role": "user", "content": "Say hello."}],
            max_tokens=12,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0


def test_the_official_client_reads_errors(demo_client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="does not exist") as caught:
        demo_client.chat.completions.create(
            model="no-such-model", messages=[{"role": "user", "content": "hello"}]
        )
    assert caught.value.code == "model_not_found"


def test_a_stream_whose_pod_is_killed_ends_in_band(
    cluster: Cluster, tenants: dict[str, Gateway], playground: str
) -> None:
    cluster.apply(manifests.service("mortal", namespace=playground))
    ready(cluster, "mortal", playground)
    events = tenants["ada"].stream("mortal", "talk", max_tokens=2000, ignore_eos=True)
    next(events)
    pod = pods_of(cluster, "mortal", playground)[0]["metadata"]["name"]
    cluster.run("delete", "pod", pod, "-n", playground, "--force", "--grace-period=0")
    rest = list(events)
    assert "error" in rest[-1], rest[-1]
    assert not any(
        choice.get("finish_reason") for event in rest for choice in event.get("choices", ())
    )
    ready(cluster, "mortal", playground)
    eventually(
        lambda: tenants["ada"].post(_hello("mortal")).status_code == 200, what="answers again"
    )


def test_a_key_whose_secret_vanishes_is_unknown(
    cluster: Cluster, playground: str, demo_url: str
) -> None:
    cluster.apply(manifests.service("guarded", namespace=playground))
    ready(cluster, "guarded", playground)
    cluster.apply(*manifests.tenant("fleeting", "fw-fleeting-key-0123456789"))
    gateway = Gateway(demo_url, "fw-fleeting-key-0123456789")
    eventually(lambda: gateway.post(_hello("guarded")).status_code == 200, what="the key works")
    cluster.delete("secret", "tenant-fleeting", namespace=manifests.KEY_NAMESPACE)
    eventually(lambda: gateway.post(_hello("guarded")).status_code == 401, what="the key is gone")
    never = Gateway(demo_url, "fw-never-was-a-key-at-all-000")
    assert gateway.post(_hello("guarded")).json() == never.post(_hello("guarded")).json()
    cluster.delete("tenant", "fleeting")


def test_another_teams_service_looks_like_a_missing_one(
    cluster: Cluster, tenants: dict[str, Gateway], playground: str
) -> None:
    cluster.apply(manifests.service("private", namespace=playground))
    ready(cluster, "private", playground)
    assert tenants["ada"].post(_hello("private")).status_code == 200
    theirs = tenants["eve"].post(_hello("private"))
    missing = tenants["eve"].post(_hello("missing"))
    assert theirs.status_code == missing.status_code == 404
    assert theirs.text.replace("private", "missing") == missing.text


def test_a_service_at_zero_is_busy_not_missing(
    cluster: Cluster, tenants: dict[str, Gateway], playground: str
) -> None:
    cluster.apply(manifests.service("asleep", namespace=playground, replicas=0))
    ready(cluster, "asleep", playground)
    answer = tenants["ada"].post(_hello("asleep"))
    assert answer.status_code == 503, answer.text
    assert 1 <= int(answer.headers["retry-after"]) <= 60


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"n": 1_000_000}, "n"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"temperature": -0.5}, "temperature"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "user", "content": " " * 1_000_000}]}, ""),
        ({"max_tokens": 10**9}, "context"),
    ],
)
def test_bad_requests_are_told_what_is_wrong(
    demo_url: str, demo_key: str, demo_model: str, fields: dict[str, object], said: str
) -> None:
    gateway = Gateway(demo_url, demo_key)
    answer = gateway.post({**_hello(demo_model), **fields})
    assert answer.status_code in {400, 413}, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert said in error["message"] or said == error["param"]
    assert gateway.post(_hello(demo_model)).status_code == 200


def _hello(model: str) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
