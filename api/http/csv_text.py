"""Tables as CSV (RFC 4180) for spreadsheets, in which no text of others becomes a formula."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import Final

_FORMULA: Final = re.compile(r"\s*[=+\-@|%\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
"""How a cell begins that some spreadsheet takes for a formula, full-width signs included."""
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
"""Numbers, and telephone numbers in E.164, stay as they are."""
BYTE_ORDER_MARK: Final = "\ufeff"
"""Spreadsheets take a file that begins with it for UTF-8."""


def csv_cell(value: str) -> str:
    """Returns the text of a cell: behind an apostrophe if a spreadsheet could take it for a formula."""
    return f"'{value}" if _FORMULA.match(value) and not _NUMBER.fullmatch(value) else value


def csv_text(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns the table as CSV, the header first."""
    output = io.StringIO()
    output.write(BYTE_ORDER_MARK)
    writer = csv.writer(output)
    writer.writerow(header)
    writer.writerows([csv_cell(each) for each in row] for row in rows)
    return output.getvalue()
