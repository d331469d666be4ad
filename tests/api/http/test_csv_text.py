"""CSV for spreadsheets."""

from __future__ import annotations

import csv
import io

import pytest

from api.http.csv_text import csv_cell, csv_text


@pytest.mark.parametrize("text", ["=cmd()", "+SUM(A1)", "-1+1", "@A1", " =1", "\t=1", "|x", "\uff1d1", "\r=1", "\n=1"])
def test_what_a_spreadsheet_takes_for_a_formula_is_text(text: str) -> None:
    assert csv_cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "+4940654321", "-1.5", "Anna", "a=b", '{"ticket": 17}'])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert csv_cell(text) == text


def test_cells_keep_separators_quotes_and_lines() -> None:
    row = ["a,b;c", 'say "hello"', "two\nlines", "'=1"]
    written = csv_text(["1", "2", "3", "4"], [row])
    assert list(csv.reader(io.StringIO(written.removeprefix("\ufeff"), newline="")))[1] == row
