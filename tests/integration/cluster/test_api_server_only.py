"""An API server alone: starts, refuses, audits, stops."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client, config

from e2e.cluster import ApiServer, start_api_server
from e2e.cluster.processes import start_time


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    server = start_api_server(tmp_path_factory.mktemp("api"))
    yield server
    server.stop()


@pytest.fixture
def admin(api: ApiServer) -> Iterator[client.CoreV1Api]:
    with config.new_client_from_config(str(api.kubeconfig)) as connection:
        yield client.CoreV1Api(connection)


def test_namespaces_work_without_nodes(admin: client.CoreV1Api) -> None:
    admin.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name="made")))
    assert admin.read_namespace("made").status.phase == "Active"
    assert admin.list_node().items == []


def test_a_new_user_may_do_nothing(api: ApiServer) -> None:
    kubeconfig = api.kubeconfig_for_user("stranger", groups=["strangers"])
    with (
        config.new_client_from_config(str(kubeconfig)) as connection,
        pytest.raises(client.ApiException) as refused,
    ):
        client.CoreV1Api(connection).list_namespace()
    assert refused.value.status == 403
    assert 'User \\"stranger\\" cannot list' in refused.value.body


def test_a_service_account_has_the_rights_of_its_bindings(
    api: ApiServer, admin: client.CoreV1Api
) -> None:
    kubeconfig = api.kubeconfig_for_service_account("default", "reader")
    subject = client.RbacV1Subject(kind="ServiceAccount", name="reader", namespace="default")
    view = client.V1RoleRef(api_group="rbac.authorization.k8s.io", kind="ClusterRole", name="view")
    client.RbacAuthorizationV1Api(admin.api_client).create_namespaced_role_binding(
        "default",
        client.V1RoleBinding(
            metadata=client.V1ObjectMeta(name="reader"), role_ref=view, subjects=[subject]
        ),
    )
    with config.new_client_from_config(str(kubeconfig)) as connection:
        reader = client.CoreV1Api(connection)
        assert reader.list_namespaced_config_map("default").items
        with pytest.raises(client.ApiException) as refused:
            reader.list_namespaced_config_map("kube-system")
    assert refused.value.status == 403


def test_pod_security_is_enforced_by_label(admin: client.CoreV1Api) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = client.V1ObjectMeta(name="strict", labels=labels)
    admin.create_namespace(client.V1Namespace(metadata=metadata))
    container = client.V1Container(name="c", image="x")
    spec = client.V1PodSpec(containers=[container], automount_service_account_token=False)
    pod = client.V1Pod(metadata=client.V1ObjectMeta(name="p"), spec=spec)
    with pytest.raises(client.ApiException) as refused:
        admin.create_namespaced_pod("strict", pod)
    assert refused.value.status == 403
    assert "PodSecurity" in refused.value.body


def test_every_write_is_in_the_audit_log_before_its_answer(
    api: ApiServer, admin: client.CoreV1Api
) -> None:
    admin.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name="audited")))
    events = [json.loads(line) for line in api.audit_log.read_text().splitlines()]
    writes = [
        event
        for event in events
        if event["verb"] == "create" and event["objectRef"].get("name") == "audited"
    ]
    assert [event["stage"] for event in writes] == ["ResponseComplete"]
    assert writes[0]["user"]["username"] == "fleetward-admin"
    assert writes[0]["objectRef"]["resource"] == "namespaces"
    assert writes[0]["userAgent"]
    assert writes[0]["requestReceivedTimestamp"]
    assert "requestObject" not in writes[0]


def test_two_stand_side_by_side_and_stopping_leaves_no_process(
    api: ApiServer, admin: client.CoreV1Api, tmp_path: Path
) -> None:
    second = start_api_server(tmp_path / "second")
    records = [second.table.find(name) for name in second.table.names()]
    assert len(records) == 3
    with config.new_client_from_config(str(second.kubeconfig)) as connection:
        other = client.CoreV1Api(connection)
        other.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name="second")))
    assert "second" not in [each.metadata.name for each in admin.list_namespace().items]
    second.stop()
    second.stop()
    assert [start_time(record.pid) for record in records if record] == [None, None, None]
    assert admin.list_namespace().items
