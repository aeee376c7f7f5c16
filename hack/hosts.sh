#!/usr/bin/env bash
# No file of the repository may name a package registry's host: mirrors and closed networks set their own.
set -euo pipefail
cd "$(dirname "$0")/.."
# Written in halves so that this file does not find itself.
pattern="pypi\.o""rg|pythonhosted\.o""rg|proxy\.go""lang|registry\.np""mjs|crates\.i""o|deb\.deb""ian|repo1\.ma""ven"
if git grep -nIE "$pattern" -- . ':!*/go.sum'; then
  echo "error: the lines above name a registry host; let the clients' own settings decide" >&2
  exit 1
fi
