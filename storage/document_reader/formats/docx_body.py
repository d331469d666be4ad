"""The text of a DOCX document's body."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from storage.document_reader.base.blocks import Block, heading, looks_like_header, paragraph, table
from storage.document_reader.formats.docx_styles import StylesHandler, outline_level

_SKIPPED: Final = frozenset(("del", "moveFrom", "pPrChange", "rPrChange", "sectPr", "compatibility:Fallback"))
"""Deleted or moved text, former formats, page set-up, and fallbacks for older programs."""
_CHARACTERS: Final = {"tab": " ", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_MAX_COLUMNS: Final = 100
_SPAN_DIGITS: Final = 6
"""Digits of a column span that are read, because Python's `int` rejects thousands of them."""
_MAX_PADDING: Final = 1_000_000
"""Empty cells that wide cells may add to a table; beyond them each cell counts as one."""
_MEANT_AS_HEADER: Final = 3
"""Columns from which the table style's flag for a special first row counts: programs set it on nearly every table, also
on tables of two columns with names and values."""
_FIRST_ROW_BIT: Final = 0x20


@dataclass
class _Paragraph:
    parts: list[str] = field(default_factory=list)
    style: str = ""
    level: int | None = None


@dataclass
class _Table:
    rows: list[list[str]] = field(default_factory=list)
    row: list[str] = field(default_factory=list)
    cell: list[str] | None = None
    span: int = 1
    padding: int = 0
    continues: bool = False
    repeats_header: bool = False
    first_row_differs: bool = False

    def has_header(self) -> bool:
        if self.repeats_header or not self.rows:
            return self.repeats_header
        return self.first_row_differs and len(self.rows[0]) >= _MEANT_AS_HEADER and looks_like_header(self.rows[0])

    def end_cell(self) -> None:
        text = " ".join(" ".join(self.cell or ()).split())
        column = len(self.row)
        if self.continues and self.rows and column < len(self.rows[-1]):
            text = self.rows[-1][column]
        padding = min(self.span - 1, _MAX_PADDING - self.padding)
        self.padding += padding
        self.row += [text, *[""] * padding]
        self.cell = None


class BodyHandler:
    """Reads the main part and the notes."""

    def __init__(self, styles: StylesHandler) -> None:
        self._styles = styles
        self._blocks: list[Block] = []
        self._unseen = 0
        self._paragraphs: list[_Paragraph] = []
        self._tables: list[_Table] = []
        self._in_text = False

    def take_blocks(self) -> list[Block]:
        """Returns the blocks that are complete, once."""
        taken, self._blocks = self._blocks, []
        return taken

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """An element begins."""
        if self._unseen or name in _SKIPPED:
            self._unseen += 1
        elif name == "p":
            self._paragraphs.append(_Paragraph())
        elif name in ("t", "math:t"):
            self._in_text = True
        elif name == "tbl":
            self._tables.append(_Table())
        elif self._paragraphs:
            self._start_in_paragraph(self._paragraphs[-1], name, attributes)
        if self._tables and not self._unseen:
            self._start_in_table(self._tables[-1], name, attributes)

    def end(self, name: str) -> None:
        """An element ends."""
        if self._unseen:
            self._unseen -= 1
        elif name == "p" and self._paragraphs:
            self._end_paragraph(self._paragraphs.pop())
        elif name in ("t", "math:t"):
            self._in_text = False
        elif self._tables:
            self._end_in_table(self._tables[-1], name)

    def text(self, text: str) -> None:
        """Text counts inside `t` elements only; the rest is white space and field codes."""
        if self._in_text and self._paragraphs and not self._unseen:
            self._paragraphs[-1].parts.append(text)

    def _start_in_paragraph(self, current: _Paragraph, name: str, attributes: dict[str, str]) -> None:
        if name in _CHARACTERS:
            current.parts.append(_CHARACTERS[name])
        elif name == "pStyle":
            current.style = attributes.get("val", "")
        elif name == "outlineLvl":
            current.level = outline_level(attributes.get("val", ""))

    def _end_paragraph(self, ended: _Paragraph) -> None:
        text = "".join(ended.parts)
        if self._tables and self._tables[-1].cell is not None:
            self._tables[-1].cell.append(text)
            return
        if not text:
            return
        level = self._styles.level_of(ended.style) if ended.level is None else ended.level
        self._blocks.append(paragraph(text) if level is None else heading(text, level))

    def _start_in_table(self, current: _Table, name: str, attributes: dict[str, str]) -> None:
        match name:
            case "tr":
                current.row = []
            case "tc":
                current.cell, current.span, current.continues = [], 1, False
            case "gridSpan":
                current.span = _columns(attributes.get("val", ""))
            case "vMerge":
                current.continues = attributes.get("val") != "restart"
            case "tblHeader":
                current.repeats_header = current.repeats_header or not current.rows
            case "tblLook":
                current.first_row_differs = _marks_first_row(attributes)
            case _:
                pass

    def _end_in_table(self, current: _Table, name: str) -> None:
        match name:
            case "tc":
                current.end_cell()
            case "tr" if any(current.row):
                current.rows.append(current.row)
            case "tbl":
                self._end_table(self._tables.pop())
            case _:
                pass

    def _end_table(self, ended: _Table) -> None:
        blocks = list(table(ended.rows, has_header=ended.has_header()))
        if self._tables and self._tables[-1].cell is not None:
            self._tables[-1].cell.extend(block.text for block in blocks)
        else:
            self._blocks += blocks


def _columns(span: str) -> int:
    """The number of columns that a cell spans: at least one, also for an invalid attribute, and at most those that a
    table can have."""
    digits = span.strip().removeprefix("+").lstrip("0")
    return min(int(digits[:_SPAN_DIGITS]), _MAX_COLUMNS) if digits.isascii() and digits.isdigit() else 1


def _marks_first_row(look: dict[str, str]) -> bool:
    """True if the table's style has a special first row: newer programs write an attribute, older ones a bit of a
    hexadecimal number."""
    try:
        bits = int(look.get("val", "0"), 16)
    except ValueError:
        bits = 0
    return look.get("firstRow") in ("1", "true") or ("firstRow" not in look and bool(bits & _FIRST_ROW_BIT))
