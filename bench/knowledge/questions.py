"""Corpus and questions for the document search: handbooks of invented businesses in four languages, written for this
purpose. A line that begins with `?` is a question that the passage above it answers in other words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).with_name("corpus")


@dataclass(frozen=True)
class HandbookQuestion:
    """A question, its language, and the relevant passage, by its first line (its headings)."""

    text: str
    language: str
    passage: str


@dataclass(frozen=True)
class Handbook:
    """A Markdown document in one language, and the questions that it answers."""

    name: str
    language: str
    markdown: str
    questions: tuple[HandbookQuestion, ...]


def handbooks() -> list[Handbook]:
    """All handbooks, sorted by name."""
    return [_read(path) for path in sorted(FOLDER.glob("*.md"))]


def _read(path: Path) -> Handbook:
    first, *lines = path.read_text("utf-8").splitlines()
    language = first.removeprefix("language: ")
    title = next(line.removeprefix("# ") for line in lines if line.startswith("# "))
    questions, passage = [], ""
    for line in lines:
        if line.startswith("## "):
            passage = f"{title} > {line.removeprefix('## ')}"
        if line.startswith("? "):
            questions.append(HandbookQuestion(line.removeprefix("? "), language, passage))
    markdown = "\n".join(line for line in lines if not line.startswith("? "))
    return Handbook(path.stem, language, markdown, tuple(questions))
