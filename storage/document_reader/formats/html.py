"""HTML: the visible text, without scripts and styles. The parser is that of the standard library, in pure Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from itertools import takewhile
from typing import Final

from storage.document_reader.base.blocks import Block, heading, paragraph, table

_SKIPPED_NAMES: Final = "script style template noscript svg math object iframe canvas audio video select"
_SKIPPED: Final = frozenset(_SKIPPED_NAMES.split())
_HEADINGS: Final = {f"h{level}": level for level in range(1, 7)}
_BLOCK_NAMES: Final = (
    "address article aside blockquote body caption dd details dialog div dl dt fieldset figcaption figure footer form"
    " head header hr html legend li main nav ol option p pre section summary table tbody tfoot thead title ul"
)
_BLOCKS: Final = frozenset(_BLOCK_NAMES.split())
_CELLS: Final = frozenset(("td", "th"))
_ROW_GROUPS: Final = frozenset(("thead", "tbody", "tfoot"))
_MAX_COLUMNS: Final = 100
"""Columns that a cell may span."""
_CHARSET: Final = re.compile(rb"""(?:charset|encoding)\s{0,9}=\s{0,9}["']?\s{0,9}([A-Za-z0-9_.:-]{1,40})""")
_HEAD_BYTES: Final = 2048
"""Bytes in which a page declares its encoding (the HTML standard says 1024; XML declarations and comments come
before)."""


def declared_charset(data: bytes) -> str | None:
    """Returns the encoding that the page declares in its head or its XML declaration, None without one."""
    found = _CHARSET.search(data[:_HEAD_BYTES])
    return found.group(1).decode("ascii") if found else None


def blocks_from_html(text: str) -> Iterator[Block]:
    """Returns headings, paragraphs, list items and table rows in the order of the page; its title comes first."""
    reader = _Reader()
    reader.read(text)
    if reader.title:
        yield heading(reader.title, 0)
    yield from reader.blocks


class _Table:
    """A table being read: complete rows, and the open row and cell. A table that contains headings or tables is layout:
    its cells are read like the rest of the page."""

    def __init__(self) -> None:
        self.rows: list[list[str]] = []
        self.row: list[str] | None = None
        self.plain_cells = 0
        self.has_header = False
        self.span = 1
        self.in_cell = False
        self.is_plain = False
        self.in_head = False
        self.is_layout = False

    def end_row(self) -> None:
        if self.row is not None and any(cell.strip() for cell in self.row):
            if not self.rows:
                self.has_header = self.plain_cells == 0
            self.rows.append(self.row)
        self.row = None
        self.plain_cells = 0


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[Block] = []
        self.title = ""
        self._parts: list[str] = []
        self._level = 0
        self._item = False
        self._preformatted = 0
        self._unseen = ""
        self._unseen_depth = 0
        self._in_comment = False
        self._tables: list[_Table] = []

    def read(self, page: str) -> None:
        """Read a complete page, and close its open elements. The text after the last `>` has no tag, and is not parsed,
        because the parser would search for the end of a tag in quadratic time."""
        tags_end = page.rfind(">") + 1
        self.feed(page[:tags_end])
        self.close()
        if not self._in_comment:
            self.handle_data(unescape(page[tags_end:]))
        while self._tables:
            self._end_table()
        self._flush()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._unseen:
            self._unseen_depth += tag == self._unseen
        elif tag in _SKIPPED:
            self._unseen, self._unseen_depth = tag, 1
        elif tag in _CELLS or tag == "tr":
            self._start_in_table(tag, dict(attrs))
        elif tag == "br":
            self._parts.append("\n")
        elif tag == "img":
            self._parts.append(f" {dict(attrs).get('alt') or ''} ")
        elif tag in _BLOCKS or tag in _HEADINGS:
            self._start_block(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _SKIPPED:  # in XHTML, <script src="..."/> hides nothing
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if self._unseen:
            self._unseen_depth -= tag == self._unseen
            if not self._unseen_depth:
                self._unseen = ""
        elif tag == "title" and not self.title:
            self.title = " ".join("".join(self._parts).split())
            self._parts.clear()
        elif tag in _CELLS:
            self._end_cell()
        elif tag == "tr" and self._tables:
            self._end_cell()
            self._tables[-1].end_row()
        elif tag == "table" and self._tables:
            self._end_table()
        elif tag in _BLOCKS or tag in _HEADINGS:
            self._end_block(tag)

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self._parts.append(data if self._preformatted else data.replace("\n", " "))

    def parse_comment(self, i: int, report: bool = True) -> int:
        """A comment without an end extends to the page's end, as in browsers; the parser would take quadratic time."""
        end = self.rawdata.find("-->", i + 4)
        self._in_comment = end < 0
        return len(self.rawdata) if end < 0 else end + 3

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """`<![...>` is a comment to browsers; the parser would give up at many of them."""
        return self.parse_bogus_comment(i)

    def _start_block(self, tag: str) -> None:
        if tag == "table" or tag in _HEADINGS:
            self._mark_as_layout()
        self._flush()
        self._level = _HEADINGS.get(tag, 0)
        self._item = tag == "li"
        if tag in _ROW_GROUPS and self._tables:
            self._tables[-1].in_head = tag == "thead"
        if tag == "pre":
            self._preformatted += 1
        if tag == "table":
            self._tables.append(_Table())

    def _end_block(self, tag: str) -> None:
        self._flush()
        self._level = 0
        if tag == "thead" and self._tables:
            self._tables[-1].in_head = False
        if tag == "pre" and self._preformatted:
            self._preformatted -= 1

    def _flush(self) -> None:
        """Emit the text so far; inside a cell it only ends a line there."""
        if self._tables and self._tables[-1].in_cell:
            self._parts.append("\n")
            return
        text = "".join(self._parts)
        self._parts.clear()
        if not text.strip():
            return
        if self._level:
            self.blocks.append(heading(text, self._level))
        else:
            self.blocks.append(paragraph(f"- {text.strip()}" if self._item else text))
        self._item = False

    def _start_in_table(self, tag: str, attrs: dict[str, str | None]) -> None:
        if not self._tables or self._tables[-1].is_layout:
            self._flush()
            return
        current = self._tables[-1]
        self._end_cell()
        if tag == "tr" or current.row is None:
            current.end_row()
            current.row = []
        if tag in _CELLS:
            self._flush()
            current.in_cell = True
            span = attrs.get("colspan") or ""
            current.span = min(int(span), _MAX_COLUMNS) if re.fullmatch("[1-9][0-9]{0,4}", span) else 1
            current.is_plain = tag == "td" and not current.in_head

    def _end_cell(self) -> None:
        if not self._tables or not self._tables[-1].in_cell:
            return
        current = self._tables[-1]
        current.in_cell = False
        text = " ".join("".join(self._parts).split())
        self._parts.clear()
        if current.row is not None:
            is_corner = not text and not current.row  # above the names of rows, td as often as th
            current.plain_cells += current.is_plain and not is_corner
            current.row += [text, *[""] * (current.span - 1)]

    def _mark_as_layout(self) -> None:
        """Treat all open tables as layout: emit their content so far."""
        found = list(takewhile(lambda inner: not inner.is_layout, reversed(self._tables)))
        for outer in reversed(found):
            self.blocks += table(outer.rows, has_header=outer.has_header)
            self.blocks += (paragraph(cell) for cell in outer.row or ())
            outer.rows, outer.row = [], None
            outer.in_cell, outer.is_layout = False, True

    def _end_table(self) -> None:
        self._end_cell()
        ended = self._tables.pop()
        ended.end_row()
        self._flush()
        self.blocks += table(ended.rows, has_header=ended.has_header)
