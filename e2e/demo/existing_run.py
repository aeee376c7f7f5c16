"""``make up`` and ``make down`` on an existing cluster.

Of this machine no process and no network is touched, but for a port-forward during the story.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from e2e.cluster.errors import CommandFailed
from e2e.demo.existing import (
    QUICKSTART_NAMESPACE,
    Asked,
    Image,
    Refused,
    helm_words,
    present_images,
    removal,
    rights,
    told_left,
)
from e2e.demo.keys import MODEL, SECRET_OF_TENANT, apply_keys, parse_env, read_or_make_keys
from e2e.demo.keys import write_env as write_keys
from e2e.demo.place import KEY_NAMESPACE, RELEASE_NAMESPACE, DemoError, Place
from e2e.demo.release import CHART, NAMESPACE_MANIFEST, RELEASE, mend, wait_part
from e2e.demo.story import tell_story, wait_answering
from e2e.demo.waiting import FINAL_PHASES, wait_service
from e2e.images import build_images
from e2e.images.build import image_set, plan_images
from e2e.images.push import push_images
from e2e.images.settings import read_image_settings

SERVER = "FLEETWARD_CLUSTER"
FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")
NEXT = """
What to try next:
  kubectl -n {release} port-forward service/fleetward-gateway 8080:http &
  source .local/existing.env; export FLEETWARD_URL={url}
  .venv/bin/fleetward chat "Tell me about tides."
  helm test fleetward --namespace {release}
  make down CLUSTER=existing     # the quickstart and the release go; what holds data stays
"""


def up_existing(place: Place, asked: Asked) -> None:
    """Install or upgrade on the present context, apply the quickstart, tell the story."""
    server = meet(place)
    refuse_foreign_quickstart(place, server=server)
    operator, engine = provide_images(place, asked)
    with place.steps.step("chart: install or upgrade, until operator and gateway are ready"):
        install(place, asked, operator=operator, engine=engine)
    keys = read_or_make_keys(place.env_file)
    write_keys(place, keys, **{SERVER: server})
    with reach_gateway(place, asked) as reached:
        with place.steps.step("quickstart: tenants, policy and service, until it answers"):
            apply_keys(reached, keys)
            place.kubectl("apply", "-f", str(place.examples / "namespace.yaml"))
            place.kubectl("apply", "-f", str(place.examples))
            wait_service(reached, QUICKSTART_NAMESPACE, MODEL, image=engine.reference)
            wait_answering(reached, keys.a)
        tell_story(reached, keys)
    url = asked.gateway_url or "http://127.0.0.1:8080"
    place.steps.tell(NEXT.format(release=RELEASE_NAMESPACE, url=url))
    place.steps.total("everything is up")


def meet(place: Place) -> str:
    """Say which cluster is meant, and check that we may install there; returns its address.

    Raises:
        Refused: there is none, it cannot be reached, or a right is missing.
    """
    try:
        context = place.kubectl("config", "current-context").strip()
        words = ("config", "view", "--minify", "--output", "jsonpath={.clusters[0].cluster.server}")
        server = place.kubectl(*words).strip()
        version = json.loads(place.kubectl("get", "--raw", "/version"))["gitVersion"]
    except CommandFailed as error:
        raise Refused(
            f"kubectl reaches no cluster: set KUBECONFIG and its current context\n{error}"
        ) from error
    place.steps.tell(f"cluster: context {context}, {server}, Kubernetes {version}")
    missing = [" ".join(question) for question in rights() if not allowed(place, question)]
    if missing:
        raise Refused(
            "an installation needs rights that this context does not give; ask an administrator "
            f"for: {'; '.join(missing)}"
        )
    return server


def allowed(place: Place, question: tuple[str, ...]) -> bool:
    """What ``kubectl auth can-i`` says; it exits with 1 for no."""
    argv = [place.kubectl_program, "auth", "can-i", "--quiet", *question]
    return subprocess.run(argv, env=dict(place.environment), check=False).returncode == 0


def known_server(place: Place) -> str:
    """Which cluster this checkout's quickstart was put on; "" when it was put on none."""
    known = parse_env(place.env_file.read_text()) if place.env_file.exists() else {}
    return known.get(SERVER, "")


def refuse_foreign_quickstart(place: Place, *, server: str) -> None:
    """A quickstart that somebody else made is not overwritten.

    Raises:
        Refused: there is one.
    """
    if known_server(place) == server:
        return
    found = names(place, "namespace", QUICKSTART_NAMESPACE)
    if found:
        raise Refused(
            f"the cluster has a namespace {QUICKSTART_NAMESPACE} that this checkout did not make: "
            "delete it, or install the chart alone (docs/install.md)"
        )


def names(place: Place, *words: str) -> list[str]:
    """Names that ``kubectl get`` finds, without their kind; none where the kind is unknown."""
    try:
        listed = place.kubectl("get", *words, "--ignore-not-found", "--output", "name")
    except CommandFailed as error:
        if "doesn't have a resource type" in str(error):
            return []
        raise
    return [line.partition("/")[2] for line in listed.split()]


def provide_images(place: Place, asked: Asked) -> tuple[Image, Image]:
    """Build and push, or take what the nodes are said to hold."""
    if asked.registry:
        built = build_images(steps=place.steps)
        pushed = push_images(built, registry=asked.registry, steps=place.steps)
        operator, engine = (Image(each.repository, each.tag, each.digest) for each in pushed)
    else:
        operator, engine = present_images(
            asked, image_set(plan_images(settings=read_image_settings()))
        )
    for image in (operator, engine):
        place.steps.tell(f"image: {image.reference}")
    return operator, engine


def install(place: Place, asked: Asked, *, operator: Image, engine: Image) -> None:
    """Helm, then wait in the pods' own words."""
    install_chart(place, asked, operator=operator, engine=engine)
    for part in ("operator", "gateway"):
        wait_part(place, part, image=operator.reference)


def install_chart(place: Place, asked: Asked, *, operator: Image, engine: Image) -> None:
    """Helm alone. A namespace that is there is left as it is."""
    if not names(place, "namespace", RELEASE_NAMESPACE):
        place.kubectl("create", "-f", "-", stdin=json.dumps(NAMESPACE_MANIFEST))
    mend(place)
    checkout = place.paths.checkout
    place.helm(
        *helm_words(checkout, asked, operator=operator, engine=engine, release=RELEASE, chart=CHART)
    )


@contextmanager
def reach_gateway(place: Place, asked: Asked) -> Iterator[Place]:
    """The place with an address at which its gateway answers while the block runs."""
    if asked.gateway_url:
        yield replace(place, gateway_url=asked.gateway_url)
        return
    argv = [place.kubectl_program, "--namespace", RELEASE_NAMESPACE, "port-forward"]
    argv += ["--address", "127.0.0.1", "service/fleetward-gateway", ":http"]
    child = subprocess.Popen(
        argv, env=dict(place.environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert child.stdout is not None
    try:
        line = child.stdout.readline().decode(errors="replace")
        found = FORWARDING.search(line)
        if found is None:
            raise DemoError(f"kubectl port-forward says: {line.strip() or 'nothing'}")
        yield replace(place, gateway_url=f"http://127.0.0.1:{found[1]}")
    finally:
        child.terminate()
        child.communicate()


def down_existing(place: Place) -> None:
    """Remove the quickstart and the release; say what stays.

    Raises:
        Refused: the context leads to another cluster than the one we installed on, or a purge runs.
    """
    server = meet(place)
    if known_server(place) not in ("", server):
        raise Refused(
            f"this checkout installed on {known_server(place)}, and the present context leads to "
            f"{server}: switch the context back"
        )
    refuse_running_purges(place)
    if known_server(place):
        with place.steps.step("quickstart: remove it, while the operator can still help"):
            for words in removal(place.examples, secrets=tuple(SECRET_OF_TENANT.values())):
                place.kubectl(*words)
    try:
        place.helm("status", RELEASE, "--namespace", RELEASE_NAMESPACE)
    except CommandFailed as error:
        if "not found" not in str(error):
            raise
        place.steps.tell(f"no release {RELEASE} in {RELEASE_NAMESPACE}: nothing to uninstall")
    else:
        with place.steps.step("chart: uninstall"):
            where = ["--namespace", RELEASE_NAMESPACE]
            place.helm("uninstall", RELEASE, *where, "--wait", "--timeout", "5m")
    place.env_file.unlink(missing_ok=True)
    tell_left(place)


def refuse_running_purges(place: Place) -> None:
    """A purge that nobody is left to finish would hold its member pods.

    Raises:
        Refused: one runs.
    """
    if not names(place, "customresourcedefinitions", "cachepurges.fleetward.io"):
        return
    listed = json.loads(place.kubectl("get", "cachepurges.fleetward.io", "--output", "json"))
    running = [
        each["metadata"]["name"]
        for each in listed["items"]
        if (each.get("status") or {}).get("phase") not in FINAL_PHASES
    ]
    if running:
        raise Refused(
            f"purge {', '.join(running)} still runs: wait for its end (at most its deadline), or "
            "delete it, which leaves no evidence"
        )


def tell_left(place: Place) -> None:
    """What stays on the cluster."""
    definitions = [
        name for name in names(place, "customresourcedefinitions") if name.endswith(".fleetward.io")
    ]
    services: list[str] = []
    tenants: list[str] = []
    if definitions:
        tenants = names(place, "tenants.fleetward.io")
        words = ("get", "inferenceservices.fleetward.io", "--all-namespaces", "--output", "json")
        items = json.loads(place.kubectl(*words))["items"]
        services = [f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in items]
    namespaces = [
        name for name in (RELEASE_NAMESPACE, KEY_NAMESPACE) if names(place, "namespace", name)
    ]
    for line in told_left(
        definitions=definitions, namespaces=namespaces, services=services, tenants=tenants
    ):
        place.steps.tell(line)
    place.steps.total("the release is gone")
