#!/usr/bin/env bash
# All static checks; each prints its own name, the first failure ends the run.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
step() { echo "== $*"; "$@"; }
step "$python" -m ruff check --quiet .
step "$python" -m ruff format --quiet --check .
step "$python" -m mypy crds/src operator/src engine-image/src e2e tests
step .venv/bin/lint-imports --no-cache
step hack/generate.sh --check
step hack/hosts.sh
