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
    """What a block of text is."""

    HEADING = "heading"
    PARAGRAPH = "paragraph"
    ROW = "row"


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of text. `level` is a heading's: 1 for a chapter, 2 for a section in it, 0 for a title above all."""

    role: Role
    text: str
    level: int = 0


def heading(text: str, level: int) -> Block:
    """A heading block."""
    return Block(Role.HEADING, text, level)


def paragraph(text: str) -> Block:
    """A paragraph block."""
    return Block(Role.PARAGRAPH, text)


def row(names: Sequence[str], values: Sequence[str]) -> Block:
    """A table row that can be understood alone: `name: value; name: value`. Empty values are left out."""
    cells = (
        f"{name.strip()}: {value.strip()}" if name.strip() else value.strip()
        for name, value in zip_longest(names, values, fillvalue="")
        if value.strip()
    )
    return Block(Role.ROW, "; ".join(cells))


def table(rows: Sequence[Sequence[str]], *, has_header: bool) -> Iterator[Block]:
    """The rows of a table; with a header, each repeats its names. A header alone is a row of its own."""
    if has_header and len(rows) > 1:
        yield from (row(rows[0], values) for values in rows[1:])
    else:
        yield from (row((), values) for values in rows)


_NUMBER: Final = re.compile(r"[-+(]?[\s$\u20ac\u00a3\u00a5]*\d[\d\s.,'%:/)-]*")


def looks_like_header(cells: Sequence[str]) -> bool:
    """Whether a table's first row can be its header: all cells are filled, but for a corner above the names of rows,
    all differ, and none is a number."""
    names = [cell.strip() for place, cell in enumerate(cells) if place or cell.strip()]
    return bool(names) and all(names) and len(set(names)) == len(names) and not any(map(_NUMBER.fullmatch, names))


_DROPPED: Final = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u200b\u2060\ufeff\u202a-\u202e\u2066-\u2069]+"
)
"""Controls, soft hyphens, marks of direction and of no width: nothing of them is read, spoken or searched."""
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_SPACES: Final = re.compile(r"[^\S\n]+")
_LINE_ENDS: Final = re.compile(r" ?\n\s*")
_LIGATURES: Final = str.maketrans(
    {"\ufb00": "ff", "\ufb01": "fi", "\ufb02": "fl", "\ufb03": "ffi", "\ufb04": "ffl", "\ufb05": "st", "\ufb06": "st"}
)


def normalize(text: str) -> str:
    """The same text composed (NFC), with single spaces and line ends, and without what nobody can see."""
    text = _DROPPED.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    text = _SURROGATES.sub("\ufffd", text).translate(_LIGATURES)
    text = _LINE_ENDS.sub("\n", _SPACES.sub(" ", text))
    return unicodedata.normalize("NFC", text).strip()
