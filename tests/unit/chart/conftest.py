"""The chart, rendered once with its defaults."""

from __future__ import annotations

import pytest

from tests.support.chart import Chart, Manifest, find_chart


@pytest.fixture(scope="session")
def chart() -> Chart:
    return find_chart()


@pytest.fixture(scope="session")
def rendered(chart: Chart) -> list[Manifest]:
    """Every object of an installation with the default values."""
    return chart.render()
