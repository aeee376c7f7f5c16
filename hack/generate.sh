#!/usr/bin/env bash
# Prints every generated file; `--check` fails when one has drifted instead.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/python -m fleetward_api.crd --output crds/ --conditions-doc docs/conditions.md "$@"
.venv/bin/python -m e2e.images chart-crds "$@"
