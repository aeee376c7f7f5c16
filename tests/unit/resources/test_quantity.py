"""Amounts and durations."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.quantity import (
    format_duration,
    parse_duration,
    parse_milli_quantity,
    parse_quantity,
    quantity_fraction,
)

UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}


@pytest.mark.parametrize(
    ("text", "amount"),
    [("1Gi", 2**30), ("1.5Gi", 3 * 2**29), ("500m", 1), ("0", 0), (7, 7), ("2k", 2000)],
)
def test_examples(text: int | str, amount: int) -> None:
    assert parse_quantity(text) == amount


def test_milli_quantities_keep_thousandths() -> None:
    assert parse_milli_quantity("250m") == 250
    assert parse_milli_quantity("1.5") == 1500
    assert parse_milli_quantity(2) == 2000


@given(st.integers(0, 10**15 - 1), st.sampled_from([*UNITS.items(), *BINARY.items()]))
def test_a_suffix_multiplies(number: int, suffix: tuple[str, int]) -> None:
    assert parse_quantity(f"{number}{suffix[0]}") == number * suffix[1]


@given(st.integers(0, 10**6), st.integers(0, 999))
def test_rounds_up_to_whole_units(whole: int, thousandths: int) -> None:
    text = f"{whole}.{thousandths:03d}"
    exact = Fraction(whole * 1000 + thousandths, 1000)
    assert quantity_fraction(text) == exact
    assert 0 <= parse_quantity(text) - exact < 1


@pytest.mark.parametrize(
    "text", ["", "1gi", "-1", "1e3", "1.Gi", "1 Gi", "1Gi\n", "\u0661", ".5", -1]
)
def test_what_is_no_quantity_says_what_to_write(text: int | str) -> None:
    with pytest.raises(ValueError, match="write"):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1ms", 1),
        ("1s", 1000),
        ("1h30m", 5_400_000),
        ("1m1m", 120_000),
        ("99999h", 359_996_400_000),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["", "1", "1d", "1.5h", "-1s", "1s ", "100000h", "1s\n", "s"])
def test_what_is_no_duration_says_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="write"):
        parse_duration(text)


@given(st.integers(0, 99_999 * 3_600_000))
def test_a_formatted_duration_reads_back(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds)) == milliseconds


@pytest.mark.parametrize("milliseconds", [-1, 100_000 * 3_600_000])
def test_a_duration_that_cannot_be_said_is_refused(milliseconds: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        format_duration(milliseconds)
