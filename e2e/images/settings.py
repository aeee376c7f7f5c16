"""What the environment decides about the images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.errors import ClusterError
from e2e.cluster.settings import Settings, read_settings

CERTIFICATES = Path("/etc/ssl/certs")
CERTIFICATE_BUNDLE = CERTIFICATES / "ca-certificates.crt"
TORCH_KINDS = ("cpu", "cuda", "none")
MODELS = ("demo", "none")


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """Choices and places of one build.

    ``wheels``: folder with a torch wheel, bound into the builder; None takes the package index.
    ``pip_config``: the machine's own pip settings (a mirror, a proxy), bound into the builder.
    ``torch``, ``model``: the engine image's build arguments of these names.
    """

    machine: Settings
    wheels: Path | None
    pip_config: Path | None
    torch: str
    model: str

    @property
    def folder(self) -> Path:
        """What the images leave on disk, outside any checkout."""
        return self.machine.cache / "images"


def read_image_settings(environ: Mapping[str, str] | None = None) -> ImageSettings:
    """Read ``FLEETWARD_WHEELS``, ``FLEETWARD_TORCH``, ``FLEETWARD_IMAGE_MODEL`` and pip's own."""
    machine = read_settings(environ)
    source = machine.environment
    wheels = Path(source["FLEETWARD_WHEELS"]) if source.get("FLEETWARD_WHEELS") else None
    if wheels and not wheels.is_dir():
        raise ClusterError(
            f"FLEETWARD_WHEELS names {wheels}, which is no folder: name one that holds a torch "
            "wheel, or unset the variable to take torch from the package index"
        )
    return ImageSettings(
        machine=machine,
        wheels=wheels.absolute() if wheels else None,
        pip_config=find_pip_config(source),
        torch=one_of(source, "FLEETWARD_TORCH", TORCH_KINDS),
        model=one_of(source, "FLEETWARD_IMAGE_MODEL", MODELS),
    )


def find_pip_config(environ: Mapping[str, str]) -> Path | None:
    """The first of the files that pip itself would read."""
    home = Path(environ.get("HOME") or "/root")
    named = environ.get("PIP_CONFIG_FILE")
    places = [Path(named)] if named else []
    places += [home / ".config/pip/pip.conf", home / ".pip/pip.conf", Path("/etc/pip.conf")]
    return next((place for place in places if place.is_file()), None)


def one_of(environ: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """The variable's value, by default the first choice; anything else is refused by name."""
    value = environ.get(name) or choices[0]
    if value not in choices:
        raise ClusterError(f"{name} is {value!r}: it must be one of {', '.join(choices)}")
    return value
