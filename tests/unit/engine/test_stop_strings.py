"""Stop strings never show, however the text is cut."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from fleetward_engine.stop_strings import StopScanner

TEXT = st.text("abc", max_size=40)
STOPS = st.lists(st.text("abc", min_size=1, max_size=4), max_size=3).map(tuple)


def scan(stops: tuple[str, ...], deltas: list[str]) -> tuple[str, bool]:
    scanner = StopScanner(stops)
    shown = "".join(scanner.feed(delta) for delta in deltas)
    return shown + scanner.flush(), scanner.stopped


def pieces(text: str, cuts: list[int]) -> list[str]:
    places = [0, *sorted(min(c, len(text)) for c in cuts), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(places)]


@given(TEXT, STOPS, st.lists(st.integers(0, 40)))
def test_result_does_not_depend_on_the_cut(text: str, stops: tuple[str, ...], cuts) -> None:  # type: ignore[no-untyped-def]
    assert scan(stops, pieces(text, cuts)) == scan(stops, list(text)) == scan(stops, [text])


@given(TEXT, STOPS, st.lists(st.integers(0, 40)))
def test_no_stop_string_ever_shows_and_nothing_else_is_lost(  # type: ignore[no-untyped-def]
    text: str, stops: tuple[str, ...], cuts
) -> None:
    shown, stopped = scan(stops, pieces(text, cuts))
    assert text.startswith(shown)
    assert not any(stop in shown for stop in stops)
    assert stopped == any(stop in text for stop in stops)
    if not stopped:
        assert shown == text


@given(TEXT, STOPS)
def test_what_was_shown_early_stays_true(text: str, stops: tuple[str, ...]) -> None:
    scanner = StopScanner(stops)
    shown = ""
    for character in text:
        shown += scanner.feed(character)
        assert scan(stops, [text])[0].startswith(shown)


def test_holds_back_only_what_could_become_a_stop_string() -> None:
    scanner = StopScanner(("END",))
    assert scanner.feed("an EN") == "an "
    assert scanner.feed("tity") == "ENtity"
    assert scanner.feed(" E") == " "
    assert scanner.flush() == "E"


def test_the_first_complete_one_wins_and_the_longest_of_equals() -> None:
    assert scan(("abcd", "bc"), ["abcd"]) == ("a", True)
    assert scan(("c", "abc"), ["xabc"]) == ("x", True)


def test_nothing_follows_a_stop() -> None:
    scanner = StopScanner(("x",))
    assert scanner.feed("axb") == "a"
    assert scanner.feed("more") == ""
    assert scanner.flush() == ""
