"""What is told of a fault: never what a request said, always where it came from."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from fleetward_api.errors import FleetwardError
from fleetward_api.fault_words import MAX_CHARS, sentence_of, trail_of, words_of
from fleetward_api.logs import WithoutContent, log_uncaught_faults, tell_stray_fault

SECRET = "the patient's name is Q7X"


class Quoting(FleetwardError):
    """A refusal, as its caller reads it."""

    quotes_request = True


class Panic(BaseException):
    """What a library written in another language raises when it gives up."""


class Body(BaseModel):
    """Something that is validated."""

    count: int


def broken_json() -> None:
    json.loads(f'{{"a": "{SECRET}')


def wrong_type() -> None:
    Body.model_validate({"count": SECRET})


def absent_key() -> None:
    dict[str, int]()[SECRET]


def no_number() -> None:
    int(SECRET)


def no_ascii() -> None:
    (SECRET + "é").encode("ascii")


def panic() -> None:
    raise Panic(f"byte 3 is inside a character of `{SECRET}`")


def refusal() -> None:
    raise Quoting(f"there is no {SECRET}")


def grammar() -> None:
    raise RuntimeError(f"no rule in {SECRET}")


def chained() -> None:
    try:
        absent_key()
    except KeyError as fault:
        raise FleetwardError("the book is shut") from fault


def unasked() -> None:
    try:
        no_number()
    except ValueError:
        absent_key()


def group() -> None:
    raise ExceptionGroup(SECRET, [KeyError(SECRET), ValueError(SECRET)])


def noted() -> None:
    fault = KeyError("x")
    fault.add_note(SECRET)
    raise fault


QUOTERS = (
    broken_json, wrong_type, absent_key, no_number, no_ascii, panic, refusal, grammar, chained,
    unasked, group, noted,
)  # fmt: skip


def raised(raiser: object) -> BaseException:
    assert callable(raiser)
    try:
        raiser()
    except BaseException as fault:  # noqa: BLE001 - that is what is looked at
        return fault
    raise AssertionError


@pytest.mark.parametrize("raiser", QUOTERS)
def test_no_fault_is_told_with_what_it_quotes(raiser: object) -> None:
    fault = raised(raiser)
    told = sentence_of(fault) + trail_of(fault)
    assert "Q7X" not in told
    assert type(fault).__name__ in told
    assert getattr(raiser, "__name__", "?") in trail_of(fault)


def test_a_chain_and_a_group_are_told_whole() -> None:
    def last_lines(raiser: object) -> list[str]:
        return [each for each in trail_of(raised(raiser)).splitlines() if each[0].isupper()][1::2]

    assert last_lines(chained) == ["KeyError", "FleetwardError: the book is shut"]
    assert last_lines(unasked) == ["ValueError", "KeyError"]
    assert last_lines(group) == ["ExceptionGroup", "KeyError", "ValueError"]


def test_faults_of_the_machine_and_our_own_words_are_told() -> None:
    assert sentence_of(FleetwardError("mend the file")) == "mend the file"
    assert words_of(FileNotFoundError(2, "No such file", "/models/a")).endswith("'/models/a'")
    assert sentence_of(MemoryError()) == "MemoryError"
    assert sentence_of(RuntimeError("CUDA error: gone")) == "RuntimeError: CUDA error: gone"
    assert words_of(RuntimeError("a\nb")) == ""


@given(st.text(min_size=1))
def test_words_are_one_bounded_line(text: str) -> None:
    words = words_of(FleetwardError(text * 600))
    assert len(words) <= MAX_CHARS
    assert words.splitlines() in ([], [words])


def test_a_fault_that_is_its_own_cause_is_told_once() -> None:
    fault = raised(absent_key)
    other = raised(no_number)
    fault.__cause__, other.__cause__ = other, fault
    assert trail_of(fault).count("Traceback") == 2


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What a program of ours would print while the hooks are its own."""
    kept = (sys.excepthook, sys.unraisablehook, threading.excepthook)
    printed: list[str] = []

    class Printed(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            printed.append(self.format(record))

    handler = Printed()
    handler.setFormatter(WithoutContent("%(message)s"))
    logging.getLogger().addHandler(handler)
    log_uncaught_faults()
    yield printed
    logging.getLogger().removeHandler(handler)
    sys.excepthook, sys.unraisablehook, threading.excepthook = kept


class Grave:
    """What raises where nobody can catch it."""

    def __del__(self) -> None:
        no_number()


@pytest.mark.parametrize("raiser", QUOTERS)
def test_a_log_line_with_a_fault_holds_no_content(lines: list[str], raiser: object) -> None:
    fault = raised(raiser)
    logging.getLogger("x").error("it failed", exc_info=fault)
    sys.excepthook(type(fault), fault, fault.__traceback__)
    assert len(lines) == 2
    assert "Q7X" not in "".join(lines)
    assert type(fault).__name__ in lines[0]


async def test_stray_faults_of_loop_thread_and_collector_hold_no_content(
    lines: list[str],
) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(tell_stray_fault)

    def callback(_content: str) -> None:
        absent_key()

    loop.call_soon(callback, SECRET)
    await asyncio.sleep(0)
    thread = threading.Thread(target=no_number)
    thread.start()
    thread.join()
    grave = Grave()
    del grave
    loop.call_exception_handler({"message": "an end without a fault"})
    assert len(lines) == 4
    assert "Q7X" not in "".join(lines)
    assert lines[-1] == "an end without a fault"
