"""docs/protocol.md names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_row_is_backed_by_tests() -> None:
    rows = [line for line in (ROOT / "docs/protocol.md").read_text().splitlines() if line.startswith("| ")]
    heads = {"| RFC ", "| attack "}
    rows = [row for row in rows if not row.startswith(tuple(heads))]
    assert len(rows) > 30
    for row in rows:
        names = re.findall(r"`(test_\w+)`", row)
        assert names, row
        assert all((ROOT / f"tests/sipcore/{name}.py").exists() for name in names), row
