"""Programs are started once, found again, and ended."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.cluster.errors import ProcessFailed
from e2e.cluster.processes import ProcessTable, Program, read_record, start_time, write_record


@pytest.fixture
def table(tmp_path: Path) -> ProcessTable:
    return ProcessTable(tmp_path / "pids", tmp_path / "logs", {"PATH": os.environ["PATH"]})


def sleeper(seconds: str = "600", name: str = "sleeper") -> Program:
    return Program(name, ("sleep", seconds), healthy=lambda: True)


def test_a_running_program_is_not_started_twice(table: ProcessTable) -> None:
    assert table.ensure(sleeper())
    first = table.find("sleeper")
    assert not table.ensure(sleeper())
    assert table.find("sleeper") == first
    assert table.stop("sleeper")


def test_another_table_finds_the_program_by_its_record(table: ProcessTable) -> None:
    table.ensure(sleeper())
    other = ProcessTable(table.pids, table.logs, table.environment)
    assert other.find("sleeper") == table.find("sleeper")
    table.stop("sleeper")
    assert other.find("sleeper") is None


def test_a_new_command_line_replaces_the_program(table: ProcessTable) -> None:
    table.ensure(sleeper("600"))
    old = table.find("sleeper")
    assert table.ensure(sleeper("601"))
    new = table.find("sleeper")
    assert old
    assert new
    assert new.argv == ("sleep", "601")
    assert start_time(old.pid) is None
    table.stop("sleeper")


def test_a_killed_program_is_started_again(table: ProcessTable) -> None:
    table.ensure(sleeper())
    record = table.find("sleeper")
    assert record
    os.kill(record.pid, signal.SIGKILL)
    while table.find("sleeper"):
        pass
    assert table.ensure(sleeper())
    table.stop("sleeper")


def test_a_program_that_ignores_sigterm_is_killed(table: ProcessTable) -> None:
    ready = table.pids.parent / "ready"
    script = f"trap '' TERM; touch {ready}; while :; do sleep 1; done"
    stubborn = Program("stubborn", ("sh", "-c", script), healthy=ready.exists)
    table.ensure(stubborn)
    table.wait_healthy(stubborn)
    assert table.stop("stubborn", patience_seconds=0.1)
    assert table.find("stubborn") is None
    assert table.names() == []


def test_stopping_what_does_not_run_says_so(table: ProcessTable) -> None:
    assert not table.stop("nobody")


@pytest.mark.parametrize("field", ["started", "boot"])
def test_a_recycled_process_id_is_not_taken_for_ours(table: ProcessTable, field: str) -> None:
    table.ensure(sleeper())
    record = table.find("sleeper")
    assert record
    stale = replace(record, started=1) if field == "started" else replace(record, boot="earlier")
    write_record(table.pids / "other.json", stale)
    assert table.find("other") is None
    assert not table.stop("other")
    assert start_time(record.pid) is not None
    table.stop("sleeper")


def test_half_a_record_is_no_record(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    assert read_record(file) is None
    for content in (
        "",
        "{",
        "[]",
        '{"pid": 1}',
        '{"pid": "x", "started": 1, "boot": "", "argv": []}',
    ):
        file.write_text(content)
        assert read_record(file) is None


def test_a_program_that_dies_is_reported_with_its_last_words(table: ProcessTable) -> None:
    dying = Program("dying", ("sh", "-c", "echo no such flag; exit 3"), healthy=lambda: False)
    table.ensure(dying)
    with pytest.raises(ProcessFailed, match="no such flag"):
        table.wait_healthy(dying)


def test_a_program_that_never_serves_is_reported(table: ProcessTable) -> None:
    table.ensure(sleeper())
    with pytest.raises(ProcessFailed, match="not healthy after"):
        table.wait_healthy(replace(sleeper(), healthy=lambda: False), seconds=0.05)
    table.stop("sleeper")


def test_a_missing_program_is_named(table: ProcessTable) -> None:
    with pytest.raises(ProcessFailed, match="no-such-program is not installed"):
        table.ensure(Program("x", ("no-such-program",), healthy=lambda: True))
