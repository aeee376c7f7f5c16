"""`fleetward check`: whether an installed release works, as `helm test` asks it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Final

import httpx
import typer

from fleetward_cli.cluster import (
    RELEASE_NAMESPACE,
    KubeconfigOption,
    ReleaseNamespaceOption,
    read_paths,
)
from fleetward_cli.errors import CliError
from fleetward_cli.installation import (
    LEASE,
    PARTS,
    WRONG_KEY,
    Finding,
    HttpAnswer,
    KubeObject,
    check_definition,
    check_lease,
    check_ready,
    check_refusal,
    check_restricted,
    check_rollout,
    definition_names,
)
from fleetward_kube import KubeError

HTTP_SECONDS: Final = 10.0
PAUSE_SECONDS: Final = 2.0
DEFINITIONS_PATH: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

Read = Callable[[str], KubeObject]


def check(
    *,
    url: Annotated[
        str,
        typer.Option(
            "--url",
            envvar="FLEETWARD_URL",
            help="the gateway's base URL (default: its Service, as pods beside it know it)",
        ),
    ] = "",
    wait: Annotated[
        float, typer.Option("--wait", min=0.0, help="seconds for what is wrong to become right")
    ] = 0.0,
    kubeconfig: KubeconfigOption = None,
    release_namespace: ReleaseNamespaceOption = RELEASE_NAMESPACE,
) -> None:
    """Check an installed release: kinds, operator, gateway, Pod Security. Reads no Secret.

    Exit status: 0 all is well; 1 something is wrong, and each line says what.
    """
    base = url or service_url(os.environ)

    def read(path: str) -> KubeObject:
        return read_paths({"it": path}, kubeconfig=kubeconfig)["it"]

    deadline = time.monotonic() + wait
    while True:
        findings = look(read, base=base, namespace=release_namespace)
        wrong = [finding for finding in findings if finding.fault]
        if not wrong or time.monotonic() > deadline:
            break
        time.sleep(PAUSE_SECONDS)
    for finding in findings:
        line = (
            f"WRONG  {finding.what}: {finding.fault}" if finding.fault else f"ok     {finding.what}"
        )
        typer.echo(line)
    if wrong:
        raise CliError(f"{len(wrong)} of {len(findings)} checks failed")


def service_url(environ: Mapping[str, str]) -> str:
    """The gateway's Service by the variables that Kubernetes gives pods of its namespace.

    Raises:
        CliError: they are not there.
    """
    host = environ.get("FLEETWARD_GATEWAY_SERVICE_HOST", "")
    port = environ.get("FLEETWARD_GATEWAY_SERVICE_PORT", "")
    if not (host and port):
        raise CliError("say where the gateway answers: --url, or FLEETWARD_URL")
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def look(read: Read, *, base: str, namespace: str) -> list[Finding]:
    """Every check once."""
    deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    findings = [
        judged(f"kind {name}", read, f"{DEFINITIONS_PATH}/{name}", _definition_judge(name))
        for name in definition_names()
    ]
    for part in PARTS:
        path = f"{deployments}/fleetward-{part}"
        judges = (check_rollout, check_restricted)
        findings += [judged(part, read, path, _part_judge(judge, part)) for judge in judges]
    findings.append(judged("operator: one leads", read, f"{leases}/{LEASE}", check_lease))
    return [*findings, *ask_gateway(base)]


def _definition_judge(name: str) -> Callable[[KubeObject], Finding]:
    return lambda item: check_definition(name, item)


def _part_judge(
    judge: Callable[[str, KubeObject], Finding], part: str
) -> Callable[[KubeObject], Finding]:
    return lambda item: judge(part, item)


def judged(what: str, read: Read, path: str, judge: Callable[[KubeObject], Finding]) -> Finding:
    """What `judge` makes of the object; of an empty one where there is none."""
    try:
        item = read(path)
    except KubeError as error:
        if not error.not_found:
            return Finding(what, f"cannot be read: {error.message}")
        item = {}
    return judge(item)


def ask_gateway(base: str) -> list[Finding]:
    """Readiness, and that nobody gets in without a key."""
    refused = {
        "gateway: /v1/models without a key": {},
        "gateway: /v1/models with an unknown key": {"Authorization": f"Bearer {WRONG_KEY}"},
    }
    # The gateway is asked directly: a proxy of the environment is for other hosts.
    with httpx.Client(base_url=base, timeout=HTTP_SECONDS, trust_env=False) as client:
        try:
            ready = check_ready(answer_of(client.get("/readyz")))
            return [
                ready,
                *(
                    check_refusal(what, answer_of(client.get("/v1/models", headers=headers)))
                    for what, headers in refused.items()
                ),
            ]
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            words = str(error) or type(error).__name__
            return [Finding(f"gateway at {base}", f"does not answer: {words}")]


def answer_of(response: httpx.Response) -> HttpAnswer:
    """What of a response is judged."""
    return HttpAnswer(response.status_code, response.text)
