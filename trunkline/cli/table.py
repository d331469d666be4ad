"""Tables on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def table(columns: Mapping[str, str], rows: Sequence[Mapping[str, str]]) -> list[str]:
    """The lines of a table with aligned columns, without columns that are empty (`-`) in all rows. `columns`: the
    headings by the names of the cells."""
    used = {name: head for name, head in columns.items() if not rows or any(row.get(name, "-") != "-" for row in rows)}
    cells = [list(used.values()), *([row.get(name, "-") for name in used] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in cells]
