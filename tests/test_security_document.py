"""docs/background/security.md names the tests of every boundary; tests/test_docs.py proves that they exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parent.parent / "docs/background/security.md"
TOPICS: Final = ("Firewall", "TLS for the API", "TLS and SRTP", "Backups", "Users and keys", "Trunk policy", "Metrics")


def section(title: str) -> str:
    """The text below a heading of the page, up to the next heading."""
    match = re.search(rf"^## {title}$(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert match is not None, title
    return match[1]


def test_every_boundary_names_tests() -> None:
    rows = [row for row in section("Boundaries").splitlines() if row.startswith("| ")][1:]
    assert len(rows) > 25
    for row in rows:
        assert re.search(r"`test_\w+`", row.rpartition(" | ")[2]), row


def test_unprotected_aspects_are_listed() -> None:
    assert section("Not protected").count("\n- **") > 5


def test_the_checklist_has_its_topics() -> None:
    items = re.findall(r"^- \[ \] \*\*([^*]+)\*\*", section("Checklist for operators"), re.MULTILINE)
    assert set(TOPICS) <= {topic for topic in TOPICS for item in items if item.startswith(topic)}
