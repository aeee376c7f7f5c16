"""Configuration files named by their content.

A new content is a new file, so the command line that names it changes, and the program is started
again with it; a file that a running program reads or watches is never written twice.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path


def write_config(folder: Path, name: str, content: str) -> Path:
    """Write ``<stem>-<hash><suffix>`` in ``folder`` unless it is there; returns its path."""
    digest = hashlib.sha256(content.encode()).hexdigest()[:8]
    plain = Path(name)
    file = folder / f"{plain.stem}-{digest}{plain.suffix}"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(f"{file.name}.partial")
        partial.write_text(content)
        partial.rename(file)
    return file


def write_json_config(folder: Path, name: str, document: object) -> Path:
    """The same for a document; JSON is YAML to Kubernetes' programs."""
    return write_config(folder, name, json.dumps(document, indent=2, sort_keys=True))
