"""PDF: the text of each page, read by pypdf (pure Python: a hostile file can waste time, but breaks no memory)."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pypdf
from pypdf.errors import FileNotDecryptedError, LimitReachedError, WrongPasswordError

from storage.document_reader.base.blocks import Block, normalize
from storage.document_reader.base.errors import TOO_DEEP, UnreadableDocument
from storage.document_reader.formats.pdf_layout import TextLine, blocks_from_lines

DAMAGED: Final = "The PDF is damaged"
NO_PDF: Final = "The file is not a PDF"
BEYOND_LIMITS: Final = "The PDF goes beyond what is allowed in size or nesting"
ENCRYPTED: Final = "The PDF is encrypted"

_MARK: Final = b"%PDF-"
_MARK_WITHIN: Final = 1024
"""Bytes in which viewers search for the header (PDF 32000-1, annex H.3.4.1)."""
_LEADERS: Final = re.compile(r"(?: ?[.\u2026]){5,} ?")
"""Dot leaders before a page number."""


def blocks_from_pdf(data: bytes, pages: int) -> Iterator[Block]:
    """Returns headings and paragraphs of at most `pages` pages, guessed from font sizes and positions. An encrypted PDF
    is read if it opens without a password, as in every viewer."""
    return blocks_from_lines(list(_pages(data, pages)))


def _pages(data: bytes, most: int) -> Iterator[Sequence[TextLine]]:
    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        for number, page in enumerate(reader.pages, 1):
            if number > most:
                raise UnreadableDocument(f"The PDF has more than {most:,} pages")
            yield _lines(page)
    except (UnreadableDocument, MemoryError):
        raise
    except (FileNotDecryptedError, WrongPasswordError) as error:
        raise UnreadableDocument(ENCRYPTED) from error
    except LimitReachedError as error:
        raise UnreadableDocument(BEYOND_LIMITS, type(error).__name__) from error
    except RecursionError as error:
        raise UnreadableDocument(TOO_DEEP) from error
    except Exception as error:
        raise UnreadableDocument(DAMAGED if _MARK in data[:_MARK_WITHIN] else NO_PDF, type(error).__name__) from error


def _lines(page: pypdf.PageObject) -> list[TextLine]:
    collected = _Lines()
    page.extract_text(visitor_text=collected.add)
    return collected.finish()


class _Lines:
    """Joins the pieces of text that pypdf reports into lines."""

    def __init__(self) -> None:
        self._lines: list[TextLine] = []
        self._text = ""
        self._sizes: dict[float, int] = {}
        self._height = 0.0

    def add(self, text: str, page: Sequence[float], line: Sequence[float], _font: Any, font_size: float) -> None:
        """Add a piece of text: its matrices of page and line (PDF 32000-1, 9.4.4), and its font's nominal size."""
        if text.strip():
            size = font_size * math.hypot(line[2], line[3]) * math.hypot(page[2], page[3])
            rounded = round(2 * size) / 2
            self._sizes[rounded] = self._sizes.get(rounded, 0) + len(text)
            self._height = line[4] * page[1] + line[5] * page[3] + page[5]
        first, *others = text.split("\n")
        self._text += first
        for other in others:
            self._end()
            self._text = other

    def finish(self) -> list[TextLine]:
        """Returns all lines of the page."""
        self._end()
        return self._lines

    def _end(self) -> None:
        text = _LEADERS.sub(" ", normalize(self._text))
        if text:
            size = max(self._sizes, key=self._sizes.__getitem__, default=0.0)
            self._lines.append(TextLine(text, size, self._height))
        self._text = ""
        self._sizes = {}
