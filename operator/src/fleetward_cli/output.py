"""Text for people, JSON for programs."""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeAlias

import typer
from rich.console import Console
from rich.table import Table

PIPE_WIDTH: Final = 400


class Format(enum.StrEnum):
    """What a command prints."""

    TEXT = "text"
    JSON = "json"


FormatOption: TypeAlias = Annotated[
    Format, typer.Option("-o", "--output", help="text for people, json for programs")
]


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """One JSON document on stdout."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def build_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table; the last column holds sentences and may wrap."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns[:-1]:
        table.add_column(column, no_wrap=True)
    table.add_column(columns[-1], overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def console() -> Console:
    """Bound to the stdout of this moment. Markup in values is text, not markup."""
    # A pipe has no width: lines stay whole for grep.
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(markup=False, emoji=False, highlight=False, width=width)
