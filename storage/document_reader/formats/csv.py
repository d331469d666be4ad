"""CSV with any separator: each row with the names of the header."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice, takewhile
from typing import Final

from storage.document_reader.base.blocks import Block, heading, looks_like_header, row
from storage.document_reader.base.errors import UnreadableDocument

_SEPARATORS: Final = ",;\t|"
_SAMPLE_ROWS: Final = 50
_SAMPLE: Final = 2**16
_MAX_TITLES: Final = 3
_SEPARATOR_LINE: Final = re.compile(r"\s*sep=(.)[ \t]*\r?\n", re.IGNORECASE)
"""A first line that names the separator for spreadsheet programs."""


def blocks_from_csv(text: str) -> Iterator[Block]:
    """Yields a block for each row. The first row is the header if it can be one (`looks_like_header`). Titles may
    precede it."""
    csv.field_size_limit(2**31 - 1)
    text = text.replace("\0", "")
    separator_line = _SEPARATOR_LINE.match(text)
    separator = separator_line.group(1) if separator_line else _separator_of(text[:_SAMPLE])
    rows = _rows(text[separator_line.end() :] if separator_line else text, separator)
    head = list(islice(rows, _MAX_TITLES + 1))
    titles = _titles_of(head)
    yield from (heading(" ".join(cells), level) for level, cells in enumerate(head[:titles]))
    rows = chain(head[titles:], rows)
    first = next(rows, [])
    if len(first) > 1 and looks_like_header(first):
        yield from (row(first, values) for values in rows)
    else:
        yield row((), first)
        yield from (row((), values) for values in rows)


def _rows(text: str, separator: str) -> Iterator[list[str]]:
    """All rows that are not empty."""
    try:
        for values in csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True):
            if any(value.strip() for value in values):
                yield values
    except csv.Error as error:
        raise UnreadableDocument("The CSV file is damaged", f"csv: {error}") from error


def _titles_of(head: list[list[str]]) -> int:
    """The number of title rows at the beginning, in which only the first cell is filled. Without a row of several cells
    there is no table, hence no title."""
    if all(len(cells) == 1 for cells in head):
        return 0
    return sum(1 for _ in takewhile(_is_title, head[:_MAX_TITLES]))


def _is_title(cells: list[str]) -> bool:
    return bool(cells[0].strip()) and not any(cell.strip() for cell in cells[1:])


def _separator_of(sample: str) -> str:
    """The separator with which most rows have the same number of cells; among equals, the one with most cells."""

    def merit(separator: str) -> tuple[int, int]:
        counts = Counter(len(values) for values in islice(_rows(sample, separator), _SAMPLE_ROWS))
        width, rows = max(((width, rows) for width, rows in counts.items() if width > 1), default=(0, 0), key=_by_rows)
        return rows, width

    return max(_SEPARATORS, key=merit)


def _by_rows(found: tuple[int, int]) -> tuple[int, int]:
    width, rows = found
    return rows, width
