"""docs/background/security.md names the tests of every boundary; tests/test_docs.py proves that they exist. The
checklist says for each of its lines what to set and how to verify it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parent.parent / "docs"
PAGE: Final = DOCS / "background/security.md"
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


def test_the_checklist_has_its_topics_each_with_what_to_set_and_how_to_verify_it() -> None:
    text = (DOCS / "how-to/security-checklist.md").read_text()
    rows = re.findall(r"^\| \*\*([^*]+)\*\* \| (.+) \| (.+) \|$", text, re.MULTILINE)
    assert len(rows) == len(re.findall(r"^\| \*\*", text, re.MULTILINE))
    assert set(TOPICS) <= {topic for topic in TOPICS for item, _, _ in rows if item.startswith(topic)}
