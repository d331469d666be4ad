"""Tables on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def table(columns: Mapping[str, str], rows: Sequence[Mapping[str, str]]) -> list[str]:
    """The lines of a table; columns that no row fills are left out."""
    shown = {name: head for name, head in columns.items() if not rows or any(row.get(name, "-") != "-" for row in rows)}
    cells = [list(shown.values()), *([row.get(name, "-") for name in shown] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in cells]
