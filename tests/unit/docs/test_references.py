"""Every test, file and page that the documentation names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGES = sorted(Path("docs").glob("*.md"))
_TEST = re.compile(r"`(tests/[\w/.]+|e2e/[\w/.]+)(?:::(\w+))?`")
_LINK = re.compile(r"\]\(([^)#:]+\.md)(?:#([\w-]+))?\)")
_SHORT = re.compile(r"`…::(\w+)`")


def anchors(page: Path) -> set[str]:
    """What the headings of a page can be linked by."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_tests_are_there(page: Path) -> None:
    text, last = page.read_text(), ""
    for match in re.finditer(f"{_TEST.pattern}|{_SHORT.pattern}", text):
        path, name, short = match.groups()
        last = path or last
        assert Path(last).exists(), match.group()
        if wanted := name or short:
            assert re.search(rf"def {wanted}\(", Path(last).read_text()), match.group()


@pytest.mark.parametrize("page", [*PAGES, Path("README.md")], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in _LINK.findall(page.read_text()):
        linked = page.parent / target
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), f"{target}#{anchor}"
