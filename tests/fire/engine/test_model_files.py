"""An engine that cannot load its model says why in one line, and ends; it is never ready."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from e2e.chaos.scale import is_full
from e2e.cluster.ports import free_port
from fleetward_engine.server.process import EXIT_NOT_LOADED, TELL_S
from tests.support.checkpoints import make_config, make_weights, write_checkpoint
from tests.support.gguf_files import tokenizer_metadata, write

CHECKPOINT = "checkpoint"
SHARD = f"{CHECKPOINT}/model-00002-of-00002.safetensors"
AT_ONCE = 2
"""Each process loads torch."""
ENDS_WITHIN_S = TELL_S[EXIT_NOT_LOADED] + 15.0
"""From the first line about the fault."""


READS_ALL = "-dac_override,-dac_read_search"
AS_PODS_RUN = ("setpriv", "--bounding-set", READS_ALL) if os.getuid() == 0 else ()
"""Without what lets root read every file."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What is done to a folder with a good `m.gguf`; which path and advice the words must hold.

    With `source` "checkpoint" that folder holds a good checkpoint instead.
    """

    name: str
    do: Callable[[Path], object]
    words: tuple[str, ...]
    source: str = "m.gguf"
    flags: tuple[str, ...] = field(default=())

    def make(self, folder: Path) -> None:
        """Write the model and do the damage."""
        if self.source == CHECKPOINT:
            config = make_config()
            write_checkpoint(folder / CHECKPOINT, config, make_weights(config), shards=2)
        else:
            write(folder / "m.gguf", metadata=tokenizer_metadata())
        self.do(folder)


def truncate(folder: Path) -> None:
    whole = (folder / "m.gguf").read_bytes()
    (folder / "m.gguf").write_bytes(whole[: len(whole) * 3 // 4])


def garbage(folder: Path) -> None:
    whole = (folder / "m.gguf").read_bytes()
    (folder / "m.gguf").write_bytes(b"GGUF" + b"\xa5" * 60 + whole[64:])


def absent(folder: Path) -> None:
    (folder / "m.gguf").unlink()


def unreadable(folder: Path) -> None:
    (folder / "m.gguf").chmod(0)


def a_folder_in_its_place(folder: Path) -> None:
    (folder / "m.gguf").unlink()
    (folder / "m.gguf").mkdir()


def nothing(folder: Path) -> None:
    del folder


def link_out(folder: Path) -> None:
    inside = folder / CHECKPOINT / "config.json"
    inside.rename(folder / "config.json")
    inside.symlink_to(folder / "config.json")


def another_architecture(folder: Path) -> None:
    write(folder / "m.gguf", architecture="mamba", metadata=tokenizer_metadata())


DAMAGES = (
    Damage(
        "digest",
        nothing,
        ("m.gguf", "was pinned", "bring the pinned file"),
        flags=("--model-digest", "sha256:" + "0" * 64),
    ),
    Damage("truncated", truncate, ("m.gguf", "can't be read as GGUF", "fetch it again")),
    Damage("garbage", garbage, ("m.gguf", "can't be read as GGUF", "fetch it again")),
    Damage("absent", absent, ("m.gguf", "no file or folder", "put the .gguf file there")),
    Damage(
        "unreadable", unreadable, ("m.gguf", "Permission denied", f"let user {os.getuid()} read")
    ),
    Damage("empty folder", absent, ("exactly one .gguf file", "found: none"), source=""),
    Damage("folder", a_folder_in_its_place, ("m.gguf", "exactly one .gguf file")),
    Damage("folder in it", a_folder_in_its_place, ("m.gguf is a folder", "name"), source=""),
    Damage("no code", another_architecture, ("m.gguf", "architecture 'mamba'", "only 'llama'")),
    Damage(
        "shard missing",
        lambda folder: (folder / SHARD).unlink(),
        (SHARD, "is missing", "index.json names it", "fetch it again"),
        source=CHECKPOINT,
    ),
    Damage(
        "header bomb",
        lambda folder: (folder / SHARD).write_bytes(b"\xff" * 8),
        (SHARD, "claims a header of", "fetch it again"),
        source=CHECKPOINT,
    ),
    Damage(
        "link out of the folder",
        link_out,
        (f"{CHECKPOINT}/config.json is a link to", "put the file itself there"),
        source=CHECKPOINT,
    ),
)


@dataclass(slots=True)
class Story:
    """What a process did: the answers of its readiness probe, its exit, its last words."""

    ready: set[int] = field(default_factory=set)
    told: str = ""
    code: int | None = None
    log: str = ""
    termination: str = ""
    seconds_after_words: float = 0.0


async def start(folder: Path, damage: Damage) -> Story:
    """Run an engine on a damaged model until it ends, probing it as the kubelet does."""
    model = folder / damage.source
    port, termination = free_port(), folder / "termination"
    arguments = [
        "serve", "--insecure-local", "--model", f"file://{model}", "--host", "127.0.0.1",
        "--port", str(port), "--metrics-port", str(free_port()), "--pid-file", str(folder / "pid"),
        "--termination-log", str(termination), "--kv-cache-memory-bytes", "100000", *damage.flags,
    ]  # fmt: skip
    story = Story()
    with (folder / "log").open("wb") as log:
        child = await asyncio.create_subprocess_exec(
            *AS_PODS_RUN,
            sys.executable,
            "-m",
            "fleetward_engine",
            *arguments,
            stdout=log,
            stderr=log,
        )
    words_at = 0.0
    try:
        async with asyncio.timeout(150), httpx.AsyncClient(timeout=10) as http:
            while child.returncode is None:
                try:
                    answer = await http.get(f"http://127.0.0.1:{port}/ready")
                except httpx.TransportError:
                    await asyncio.sleep(0.2)
                    continue
                story.ready.add(answer.status_code)
                if answer.status_code == 200:
                    break
                if termination.exists():
                    words_at = words_at or time.monotonic()
                    story.told = answer.text
                await asyncio.sleep(0.2)
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()
    story.seconds_after_words = time.monotonic() - words_at
    story.code, story.log = child.returncode, (folder / "log").read_text()
    story.termination = termination.read_text() if termination.exists() else ""
    return story


async def test_a_model_that_cannot_be_loaded_is_told_and_ends_the_process(tmp_path: Path) -> None:
    running = asyncio.Semaphore(AT_ONCE)

    async def case(number: int, damage: Damage) -> Story:
        folder = tmp_path / str(number)
        folder.mkdir()
        damage.make(folder)
        async with running:
            return await start(folder, damage)

    damages = DAMAGES if is_full() else (DAMAGES[1], DAMAGES[-1])
    stories = await asyncio.gather(*(case(*each) for each in enumerate(damages)))
    for number, (damage, story) in enumerate(zip(damages, stories, strict=True)):
        about = (damage.name, story)
        assert story.code == EXIT_NOT_LOADED, about
        assert 200 not in story.ready, about
        assert story.seconds_after_words < ENDS_WITHIN_S, about
        assert str(tmp_path / str(number)) in story.termination, about
        assert "\n" not in story.termination, about
        for words in damage.words:
            assert words in story.termination, about
        assert story.termination in story.log, about
        assert damage.words[-1] in story.told.replace('\\"', '"'), about


@pytest.mark.parametrize("source", ["m.gguf", CHECKPOINT])
async def test_the_same_files_unharmed_are_served(tmp_path: Path, source: str) -> None:
    damage = Damage("none", nothing, (), source=source)
    damage.make(tmp_path)
    story = await start(tmp_path, damage)
    assert 200 in story.ready, story
