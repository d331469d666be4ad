"""Tables as CSV (RFC 4180) for spreadsheets, in which no text of others becomes a formula."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import Final

_SIGN: Final = r"[=+\-@|%\uff1d\uff0b\uff0d\uff20]"
"""How a text begins that some spreadsheet takes for a formula, full-width signs included."""
_FORMULA: Final = re.compile(rf"\s*{_SIGN}|[\t\r\n]")
_FORMULA_INSIDE: Final = re.compile(rf'([;\t\r\n])(?=[\s"]*{_SIGN})')
"""Where a spreadsheet whose separator is a semicolon or a tab begins a cell or a row with a formula: to it, quotation
marks of a cell between commas are a part of the text."""
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
"""Numbers, and telephone numbers in E.164, stay as they are."""
BYTE_ORDER_MARK: Final = "\ufeff"
"""Spreadsheets take a file that begins with it for UTF-8."""


def csv_cell(value: str) -> str:
    """Returns the text of a cell, with an apostrophe before each part that a spreadsheet could take for a formula,
    whether commas, semicolons or tabs separate its cells."""
    text = _FORMULA_INSIDE.sub(r"\1'", value)
    return f"'{text}" if _FORMULA.match(value) and not _NUMBER.fullmatch(value) else text


def csv_text(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns the table as CSV, the header first."""
    output = io.StringIO()
    output.write(BYTE_ORDER_MARK)
    writer = csv.writer(output)
    writer.writerow(header)
    writer.writerows([csv_cell(each) for each in row] for row in rows)
    return output.getvalue()
