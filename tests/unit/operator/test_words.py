"""Lists of words in sentences."""

from __future__ import annotations

import pytest

from fleetward_operator.core.words import enumerated


@pytest.mark.parametrize(
    ("words", "text"),
    [((), ""), (("a",), "a"), (("a", "b"), "a and b"), (("a", "b", "c"), "a, b and c")],
)
def test_reads_as_a_person_would_write_it(words: tuple[str, ...], text: str) -> None:
    assert enumerated(words) == text
