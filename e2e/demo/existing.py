"""A cluster of yours instead of the local one: what was asked for, and the commands that follow.

Nothing here runs anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from e2e.demo.place import KEY_NAMESPACE, RELEASE_NAMESPACE, DemoError
from e2e.images.plan import ImageSet

CLUSTERS = ("local", "existing")
QUICKSTART_NAMESPACE = "quickstart"
REGISTRY_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)*")
EXAMPLE = "make up CLUSTER=existing REGISTRY=registry.example/team"


class Refused(DemoError):
    """What was asked for is not enough to begin, or contradicts itself. Nothing was done."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What ``make up CLUSTER=existing`` was told.

    ``registry``: where images are pushed to; "" when they are on the nodes already.
    ``operator_image``, ``engine_image``: present images of other names than the local build's.
    ``values``: further files of chart values, the last one wins.
    ``gateway_url``: where the gateway will answer; "" goes through a port-forward.
    """

    registry: str = ""
    operator_image: str = ""
    engine_image: str = ""
    values: tuple[Path, ...] = ()
    gateway_url: str = ""


@dataclass(frozen=True, slots=True)
class Image:
    """An image as the cluster's nodes find it; ``digest`` is "" where only a tag is known."""

    repository: str
    tag: str
    digest: str = ""

    @property
    def reference(self) -> str:
        """As a pod names it: by digest where there is one."""
        return (
            f"{self.repository}@{self.digest}" if self.digest else f"{self.repository}:{self.tag}"
        )


def choose_cluster(name: str) -> str:
    """``local`` or ``existing``; the first when nothing was said.

    Raises:
        Refused: anything else.
    """
    if (name or CLUSTERS[0]) not in CLUSTERS:
        raise Refused(f"CLUSTER is {name!r}: it must be one of {', '.join(CLUSTERS)}")
    return name or CLUSTERS[0]


def read_asked(environ: Mapping[str, str]) -> Asked:
    """Read REGISTRY, IMAGES, OPERATOR_IMAGE, ENGINE_IMAGE, VALUES and GATEWAY_URL.

    Raises:
        Refused: where the images come from was not said, was said twice, or makes no sense.
    """
    registry, images = environ.get("REGISTRY", "").rstrip("/"), environ.get("IMAGES", "")
    named = (environ.get("OPERATOR_IMAGE", ""), environ.get("ENGINE_IMAGE", ""))
    if images not in ("", "present"):
        raise Refused(f"IMAGES is {images!r}: the one word it takes is `present`")
    if not registry and not images:
        raise Refused(
            "say where the cluster's nodes get the two images from: REGISTRY=… builds and pushes "
            f"them (`{EXAMPLE}`), IMAGES=present uses what is on every node already"
        )
    if registry and images:
        raise Refused("REGISTRY pushes images and IMAGES=present pushes none: give one of them")
    if registry and not REGISTRY_NAME.fullmatch(registry):
        raise Refused(
            f"REGISTRY is {registry!r}: give a host and, where it has one, a path, without a "
            "scheme, a tag or capital letters (registry.example/team)"
        )
    if registry and any(named):
        raise Refused("OPERATOR_IMAGE and ENGINE_IMAGE go with IMAGES=present, not with REGISTRY")
    for name in filter(None, named):
        parse_image(name)
    url = environ.get("GATEWAY_URL", "").rstrip("/")
    if url and not re.fullmatch(r"https?://\S+", url):
        raise Refused(f"GATEWAY_URL is {url!r}: it must begin with http:// or https://")
    values = tuple(Path(word) for word in environ.get("VALUES", "").split(",") if word)
    for file in values:
        if not file.is_file():
            raise Refused(f"VALUES names {file}, which is no file")
    return Asked(registry, *named, values=values, gateway_url=url)


def parse_image(name: str) -> Image:
    """Repository, tag and digest of a reference.

    Raises:
        Refused: it has neither tag nor digest.
    """
    repository, at, digest = name.partition("@")
    head, _, last = repository.rpartition("/")
    last, _, tag = last.partition(":")
    repository = f"{head}/{last}" if head else last
    if not repository or not (tag or digest) or (at and not digest.startswith("sha256:")):
        raise Refused(f"{name!r} is no image reference: give repository:tag or repository@sha256:…")
    return Image(repository, tag, digest)


def present_images(asked: Asked, built: ImageSet) -> tuple[Image, Image]:
    """Operator and engine as the nodes hold them: the names given, else the local build's."""
    return (
        parse_image(asked.operator_image or built.operator),
        parse_image(asked.engine_image or built.engine),
    )


def helm_words(
    checkout: Path, asked: Asked, *, operator: Image, engine: Image, release: str, chart: str
) -> list[str]:
    """The arguments of ``helm upgrade``: the chart's defaults, the images, then your values."""
    sets = [*image_sets("image", operator), *image_sets("engine.image", engine)]
    if asked.gateway_url:
        sets.append(f"gateway.publicURL={asked.gateway_url}")
    chosen = [word for pair in sets for word in ("--set-string", pair)]
    values = [word for file in asked.values for word in ("--values", str(file))]
    where = ["--namespace", RELEASE_NAMESPACE, "--history-max", "10"]
    return ["upgrade", release, str(checkout / chart), "--install", *where, *values, *chosen]


def image_sets(place: str, image: Image) -> list[str]:
    """An image as values of the chart."""
    pairs = {"repository": image.repository, "tag": image.tag, "digest": image.digest}
    return [f"{place}.{name}={value}" for name, value in pairs.items()]


def rights() -> tuple[tuple[str, ...], ...]:
    """Questions for ``kubectl auth can-i`` that an installer must answer with yes."""
    return (
        ("create", "customresourcedefinitions.apiextensions.k8s.io"),
        ("create", "clusterroles.rbac.authorization.k8s.io"),
        ("create", "namespaces"),
        ("create", "deployments.apps", "--namespace", RELEASE_NAMESPACE),
        ("create", "secrets", "--namespace", KEY_NAMESPACE),
    )


def removal(examples: Path, *, secrets: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Commands of kubectl that remove the quickstart while the operator can still help.

    Tenants first: their deletion purges what they left, and needs engines for that.
    """
    # Longer than the deletion of a tenant can take (docs/operator.md).
    gone = ("--ignore-not-found", "--timeout=420s")
    return (
        ("delete", "-f", str(examples / "tenants.yaml"), *gone),
        ("delete", "-f", str(examples / "inferenceservice.yaml"), *gone),
        ("delete", "-f", str(examples / "cachepolicy.yaml"), *gone),
        ("delete", "namespace", QUICKSTART_NAMESPACE, *gone),
        ("delete", "secret", *secrets, "--namespace", KEY_NAMESPACE, *gone),
    )


def told_left(
    *, definitions: list[str], namespaces: list[str], services: list[str], tenants: list[str]
) -> list[str]:
    """What an uninstallation leaves, and how to remove it too, in sentences."""
    lines = [f"left: {len(definitions)} definitions, so that no object of our kinds is lost"]
    if namespaces:
        lines.append(
            f"left: namespace {' and '.join(namespaces)} (keys, floors and the evidence of purges)"
        )
    if services:
        lines.append(
            f"left: {len(services)} services that are not ours to delete, whose engines run on "
            f"without an operator: {', '.join(services[:5])}{' …' if len(services) > 5 else ''}"
        )
    if tenants:
        lines.append(
            f"left: {len(tenants)} tenants, whose deletion waits for an operator: "
            f"{', '.join(tenants[:5])}{' …' if len(tenants) > 5 else ''}"
        )
    if definitions or namespaces:
        lines.append("to remove these too, with every object and all evidence in them:")
    for tenant in tenants:
        patch = """'{"metadata":{"finalizers":null}}'"""
        lines.append(f"  kubectl patch tenants.fleetward.io {tenant} --type merge -p {patch}")
    if definitions:
        lines.append(f"  kubectl delete customresourcedefinitions {' '.join(definitions)}")
    if namespaces:
        lines.append(f"  kubectl delete namespace {' '.join(namespaces)}")
    return lines
