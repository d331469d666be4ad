"""CSV for spreadsheets."""

from __future__ import annotations

import csv
import io
import re

import pytest

from api.http.csv_text import csv_cell, csv_text


@pytest.mark.parametrize("text", ["=cmd()", "+SUM(A1)", "-1+1", "@A1", " =1", "\tx", "|x", "\uff1d1", "\rx", "\nx"])
def test_what_a_spreadsheet_takes_for_a_formula_is_text(text: str) -> None:
    assert csv_cell(text) == f"'{text}"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("x;=HYPERLINK(A1)", "x;'=HYPERLINK(A1)"),
        ('{"sip.x": "a;=1+1;b"}', '{"sip.x": "a;\'=1+1;b"}'),
        ("x\t@A1", "x\t'@A1"),
        ("x; \t+1", "x;' \t'+1"),
        ('x;"=1+1"', 'x;\'"=1+1"'),
        ("x;y\n=1+1", "x;y\n'=1+1"),
        ("x;y\r\n-1", "x;y\r'\n'-1"),
        ("x;\uff1d1", "x;'\uff1d1"),
        ("=1;=1", "'=1;'=1"),
        ("\t=1", "'\t'=1"),
    ],
)
def test_a_part_that_another_separator_makes_a_cell_is_no_formula(text: str, written: str) -> None:
    assert csv_cell(text) == written
    for delimiter in ",;\t":
        rows = csv.reader(io.StringIO(csv_text(["1", "2"], [["a", text]]), newline=""), delimiter=delimiter)
        assert not any(re.match(r"\s*[=+\-@\uff1d]", cell) for row in rows for cell in row)


@pytest.mark.parametrize("text", ["", "+4940654321", "-1.5", "Anna", "a=b", "a;b", "a; b=c", '{"ticket": 17}'])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert csv_cell(text) == text


def test_cells_keep_separators_quotes_and_lines() -> None:
    row = ["a,b;c", 'say "hello"', "two\nlines", "'=1"]
    written = csv_text(["1", "2", "3", "4"], [row])
    assert list(csv.reader(io.StringIO(written.removeprefix("\ufeff"), newline="")))[1] == row
