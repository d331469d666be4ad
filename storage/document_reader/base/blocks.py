"""The text of a file in reading order: headings, paragraphs and table rows."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest
from typing import Final


class Role(StrEnum):
    """The kind of a block."""

    HEADING = "heading"
    PARAGRAPH = "paragraph"
    ROW = "row"


@dataclass(frozen=True, slots=True)
class Block:
    """A block of text. `level` is that of a heading: 1 for a chapter, 2 for a section in it, 0 for the document's
    title."""

    role: Role
    text: str
    level: int = 0


def heading(text: str, level: int) -> Block:
    """Returns a heading block."""
    return Block(Role.HEADING, text, level)


def paragraph(text: str) -> Block:
    """Returns a paragraph block."""
    return Block(Role.PARAGRAPH, text)


def row(names: Sequence[str], values: Sequence[str]) -> Block:
    """Returns a table row that can be understood alone: `name: value; name: value`. Empty values are left out."""
    cells = (
        f"{name.strip()}: {value.strip()}" if name.strip() else value.strip()
        for name, value in zip_longest(names, values, fillvalue="")
        if value.strip()
    )
    return Block(Role.ROW, "; ".join(cells))


def table(rows: Sequence[Sequence[str]], *, has_header: bool) -> Iterator[Block]:
    """Returns the rows of a table; with a header, each repeats its names. A header alone is a row."""
    if has_header and len(rows) > 1:
        yield from (row(rows[0], values) for values in rows[1:])
    else:
        yield from (row((), values) for values in rows)


_NUMBER: Final = re.compile(r"[-+(]?[\s$\u20ac\u00a3\u00a5]*\d[\d\s.,'%:/)-]*")


def looks_like_header(cells: Sequence[str]) -> bool:
    """True if a table's first row can be its header: all cells are filled, except for the corner above row names, all
    differ, and none is a number."""
    names = [cell.strip() for place, cell in enumerate(cells) if place or cell.strip()]
    return bool(names) and all(names) and len(set(names)) == len(names) and not any(map(_NUMBER.fullmatch, names))


_DROPPED: Final = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u200b\u2060\ufeff\u202a-\u202e\u2066-\u2069]+"
)
"""Control characters, soft hyphens, direction marks and zero-width characters, which are never read, spoken or
searched."""
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_SPACES: Final = re.compile(r"[^\S\n]+")
_LINE_ENDS: Final = re.compile(r" ?\n\s*")
_LIGATURES: Final = str.maketrans(
    {"\ufb00": "ff", "\ufb01": "fi", "\ufb02": "fl", "\ufb03": "ffi", "\ufb04": "ffl", "\ufb05": "st", "\ufb06": "st"}
)


def normalize(text: str) -> str:
    """Returns the text composed (NFC), with single spaces and line ends, without invisible characters."""
    text = _DROPPED.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    text = _SURROGATES.sub("\ufffd", text).translate(_LIGATURES)
    text = _LINE_ENDS.sub("\n", _SPACES.sub(" ", text))
    return unicodedata.normalize("NFC", text).strip()
