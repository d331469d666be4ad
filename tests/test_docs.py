"""Links, tests and files that the documentation names exist, and its examples for PBXs are well-formed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from uuid import uuid4
from xml.etree import ElementTree

import pytest

from api.schemas.phone_numbers import PhoneNumberCreate, PhoneNumberUpdate

ROOT = Path(__file__).parent.parent
PAGES = [*(ROOT / f"{name}.md" for name in ("README", "SECURITY", "CHANGELOG")), *sorted((ROOT / "docs").rglob("*.md"))]
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


def links(page: Path) -> list[tuple[str, str]]:
    """Path and anchor of each link to a file of the repository."""
    return LINK.findall(CODE.sub("", page.read_text()))


def existing_tests() -> set[str]:
    """The names of all tests and of their files."""
    files = list((ROOT / "tests").rglob("test_*.py"))
    return {file.stem for file in files} | {
        name for file in files for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)
    }


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as Git forges generate them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_link_targets_exist(page: Path) -> None:
    for path, anchor in links(page):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links {path}"
        assert not anchor or anchor in anchors(target), f"{page.name} links {path}#{anchor}"


def test_tests_that_a_page_names_exist() -> None:
    existing = existing_tests()
    named = {page.name: re.findall(r"\b(test_\w+)(?:\.py)?`", page.read_text()) for page in PAGES}
    assert {"protocol.md", "turn-taking.md"} <= {name for name, found in named.items() if found}
    assert not {(page, name) for page, names in named.items() for name in names if name not in existing}


FOLDERS = "api|bench|calls|config|media|models|scripts|sipcore|storage|tests|trunkline"
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./-]+)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    """A path in backticks is a file or a folder; modules may be named without `.py`, C files without `.c`."""
    named = {path for path in PATH.findall(page.read_text()) if "NAME" not in path}
    missing = {path for path in named if not any((ROOT / f"{path}{end}").exists() for end in ("", ".py", ".c"))}
    assert not missing


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, pending = set(), [ROOT / "README.md"]
    while pending:
        page = pending.pop()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            pending += [(page.parent / path).resolve() for path, _ in links(page) if path]
    assert set(PAGES) <= reached


def test_every_page_is_at_most_two_clicks_from_the_first_page_of_the_documentation() -> None:
    reached = {ROOT / "docs/README.md"}
    for _ in range(2):
        reached |= {
            (page.parent / path).resolve() for page in reached if page.suffix == ".md" for path, _ in links(page)
        }
    assert set((ROOT / "docs").rglob("*.md")) <= reached


def test_each_of_twenty_questions_links_the_section_that_answers_it() -> None:
    """That page and section exist is `test_link_targets_exist`."""
    questions = ROOT / "docs/questions.md"
    _, *answers = re.split(r"^\*\*[^*]+\?\*\*$", questions.read_text(), flags=re.MULTILINE)
    assert len(answers) == 20
    assert all(any(path.endswith(".md") for path, _ in LINK.findall(answer)) for answer in answers)
    for first_page in (ROOT / "README.md", ROOT / "docs/README.md"):
        assert questions in {(first_page.parent / path).resolve() for path, _ in links(first_page)}


def test_the_glossary_is_alphabetical() -> None:
    words = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", (ROOT / "docs/reference/glossary.md").read_text(), re.MULTILINE)[1:]
    assert len(words) > 50
    assert words == sorted(words, key=str.lower)


PBX_PAGES = sorted((ROOT / "docs/how-to/pbx").glob("*.md"))


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page in this language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PBX_PAGES, ids=lambda page: page.stem)
def test_the_api_accepts_the_phone_numbers_of_the_pages_on_pbxs(page: Path) -> None:
    for block in blocks(page, "json"):
        fields = json.loads(block)
        if "number" in fields:
            PhoneNumberCreate.model_validate({**fields, "agentId": uuid4()})
        else:
            PhoneNumberUpdate.model_validate(fields)


def test_the_xml_of_freeswitch_is_well_formed() -> None:
    found = blocks(ROOT / "docs/how-to/pbx/freeswitch.md", "xml")
    assert len(found) == 5
    for block in found:
        assert ElementTree.fromstring(block).tag == "include"
