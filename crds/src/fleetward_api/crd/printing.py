"""The printed text: one YAML file per kind."""

from __future__ import annotations

from typing import Any, Final

import yaml

from fleetward_api.crd.definitions import DEFINITIONS, build_definition

_HEADER: Final = (
    "# Printed from the models in fleetward_api; change those and run `make generate`.\n"
)


def print_definitions() -> dict[str, str]:
    """The text of every CustomResourceDefinition, by file name."""
    return {each.file_name: _HEADER + _to_yaml(build_definition(each)) for each in DEFINITIONS}


def _to_yaml(manifest: dict[str, Any]) -> str:
    return yaml.dump(
        manifest,
        Dumper=_PlainDumper,
        sort_keys=False,
        width=100,
        allow_unicode=True,
    )


class _PlainDumper(yaml.SafeDumper):
    """Writes shared values out each time: anchors would make the files hard to read."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # PyYAML's own signature
        """Never an anchor."""
        return True
