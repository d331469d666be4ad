"""docs/reference/protocol.md names the tests of every row; tests/test_docs.py checks that they exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_row_names_tests() -> None:
    rows = [line for line in (ROOT / "docs/reference/protocol.md").read_text().splitlines() if line.startswith("| ")]
    heads = {"| RFC ", "| attack "}
    rows = [row for row in rows if not row.startswith(tuple(heads))]
    assert len(rows) > 30
    for row in rows:
        assert re.search(r"`test_\w+`", row), row
