"""Tables: with colour and marks on a terminal, else aligned plain text, or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from trunkline.cli.terminal.streams import console, is_terminal, shows_marks

if TYPE_CHECKING:
    from rich.text import Text

STATE: Final = "state"
"""The name of the column whose cells get a colour and a mark."""
_GOOD: Final = (
    "ready",
    "remote",
    "allowed",
    "open",
    "registered",
    "listening",
    "active",
    "in_progress",
    "succeeded",
    "up",
)
_BAD: Final = ("failed", "refused", "denied", "revoked", "taken over", "unregistered", "down")


def print_table(columns: Mapping[str, str], rows: Sequence[Mapping[str, str]]) -> None:
    """Print a table with headings on stdout. `columns`: the headings by the names of the cells; columns that are empty
    (`-`) in all rows are left out. Only on a terminal are long cells wrapped."""
    if is_terminal(sys.stdout):
        _print_rich(columns, rows)
        return
    for line in table(columns, rows):
        print(line)


def print_json(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print one JSON object per line on stdout."""
    for row in rows:
        print(json.dumps(row, ensure_ascii=False))


def table(columns: Mapping[str, str], rows: Sequence[Mapping[str, str]]) -> list[str]:
    """The lines of a table with aligned columns, without columns that are empty (`-`) in all rows. `columns`: the
    headings by the names of the cells."""
    used = _used(columns, rows)
    cells = [list(used.values()), *([row.get(name, "-") for name in used] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _used(columns: Mapping[str, str], rows: Sequence[Mapping[str, str]]) -> dict[str, str]:
    return {name: head for name, head in columns.items() if not rows or any(row.get(name, "-") != "-" for row in rows)}


def _print_rich(columns: Mapping[str, str], rows: Sequence[Mapping[str, str]]) -> None:
    from rich import box
    from rich.table import Table

    used = _used(columns, rows)
    drawn = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False)
    for head in used.values():
        drawn.add_column(head, overflow="fold")
    for row in rows:
        drawn.add_row(*(_cell(name, row.get(name, "-")) for name in used))
    console(sys.stdout).print(drawn)


def _cell(name: str, text: str) -> Text:
    from rich.text import Text

    if name != STATE:
        return Text(text, style="dim" if text == "-" else "")
    mark, style = ("✓ ", "green") if text.startswith(_GOOD) else ("✗ ", "red") if text.startswith(_BAD) else ("", "")
    return Text(f"{mark if shows_marks(sys.stdout) else ''}{text}", style=style)
