"""The command line in this process, and a cluster that gives fixed answers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from fleetward_cli.__main__ import main
from tests.support.http_answers import HttpAnswers, json_reply, serving

GROUP = "/apis/fleetward.io/v1alpha1"
KINDS = ("inferenceservices", "cachepolicies", "tenants", "cachepurges")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `fleetward` with these words, away from the machine's own settings."""
    for name in ("KUBECONFIG", "FLEETWARD_URL", "FLEETWARD_MODEL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("FLEETWARD_KEY", "FLEETWARD_KEY_A"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")

    def call(*words: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["fleetward", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int | None)
        return Ended(code or 0, captured.out, captured.err)

    return call


@pytest.fixture
def cluster() -> Iterator[HttpAnswers]:
    """An API server that knows our kinds and has no objects."""
    with serving({f"{GROUP}/{kind}": json_reply({"items": []}) for kind in KINDS}) as answers:
        yield answers


@pytest.fixture
def kubeconfig(cluster: HttpAnswers, tmp_path: Path) -> Path:
    """Leads to that API server."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
        "clusters": [{"name": "it", "cluster": {"server": cluster.url}}],
        "users": [{"name": "me", "user": {}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path
