"""The two tenants' API keys: made once, kept in ``.local/env`` and in the key namespace."""

from __future__ import annotations

import json
import secrets
import shlex
from dataclasses import dataclass
from pathlib import Path

from e2e.demo.place import KEY_NAMESPACE, Place

MODEL = "smollm2"
SECRET_OF_TENANT = {"tenant-a": "tenant-a-key", "tenant-b": "tenant-b-key"}
KEY_BYTES = 24


@dataclass(frozen=True, slots=True)
class DemoKeys:
    """API keys of tenant A and tenant B."""

    a: str
    b: str


def parse_env(text: str) -> dict[str, str]:
    """Variables of a file of ``export NAME=VALUE`` lines."""
    words = shlex.split(text, comments=True)
    pairs = [word.partition("=") for word in words if "=" in word]
    return {name: value for name, _, value in pairs}


def read_or_make_keys(env_file: Path) -> DemoKeys:
    """The keys of an earlier run, so that its clients go on working; else new ones."""
    known = parse_env(env_file.read_text()) if env_file.exists() else {}
    return DemoKeys(
        a=known.get("FLEETWARD_KEY_A") or make_key(), b=known.get("FLEETWARD_KEY_B") or make_key()
    )


def make_key() -> str:
    """192 random bits behind a prefix that leak scanners can be taught."""
    return f"fw-{secrets.token_hex(KEY_BYTES)}"


def write_env(place: Place, keys: DemoKeys, **more: str) -> None:
    """Write the file that a shell sources, for its owner's eyes only; ``more`` goes in too."""
    values = {
        "FLEETWARD_URL": place.gateway_url,
        "FLEETWARD_MODEL": MODEL,
        "FLEETWARD_KEY_A": keys.a,
        "FLEETWARD_KEY_B": keys.b,
        **more,
    }
    if place.kubeconfig is not None:
        values["KUBECONFIG"] = str(place.kubeconfig)
    text = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())
    place.env_file.parent.mkdir(parents=True, exist_ok=True)
    place.env_file.touch(mode=0o600)
    place.env_file.chmod(0o600)
    place.env_file.write_text(text)


def apply_keys(place: Place, keys: DemoKeys) -> None:
    """Put the keys where the gateway reads them; over stdin, so that no process list shows them."""
    items = [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": KEY_NAMESPACE},
            "type": "Opaque",
            "stringData": {"key": key},
        }
        for name, key in zip(SECRET_OF_TENANT.values(), (keys.a, keys.b), strict=True)
    ]
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    apply = ["apply", "--server-side", "--force-conflicts", "--field-manager=fleetward-demo"]
    place.kubectl(*apply, "-f", "-", stdin=manifest)
