"""Fuzz checks of uploaded documents: every file gives passages that can be stored, or an error message."""

from __future__ import annotations

import json
from typing import Final

from storage.document_reader.base.errors import UnreadableDocument
from storage.document_reader.base.limits import ReadLimits
from storage.document_reader.base.media_types import DocumentFormat
from storage.document_reader.chunker import chunks_of
from storage.document_reader.formats.pdf_layout import TextLine, blocks_from_lines
from storage.document_reader.process.protocol import passage_line
from storage.document_reader.reader import read_blocks
from tests.fuzz.invariants import check_storable
from tests.storage.document_reader.office_files import docx

LIMITS: Final = ReadLimits(characters=400_000, unpacked_bytes=4 * 2**20)
_MAX_PASSAGE_BYTES: Final = 200_000
"""200 words of 60 characters with headings and search terms, in JSON's longest spelling."""


def check_document(data: bytes, document_format: DocumentFormat) -> None:
    """Reads a document like the worker process. Only `UnreadableDocument` may be raised."""
    characters = 0
    try:
        blocks = list(read_blocks(data, document_format, LIMITS))
    except UnreadableDocument as unreadable:
        check_storable(unreadable.message)
        return
    for block in blocks:
        assert block.text.strip()
        assert 0 <= block.level <= 9
        characters += len(block.text)
    assert 0 < characters <= LIMITS.characters
    for position, chunk in enumerate(chunks_of(blocks)):
        line = passage_line(chunk)
        assert chunk.position == position
        assert json.loads(line) == [chunk.text, chunk.terms]
        check_storable(chunk.text)
        assert len(line) <= _MAX_PASSAGE_BYTES


def text(data: bytes) -> None:
    """Plain text in any encoding."""
    check_document(data, DocumentFormat.TEXT)


def markdown(data: bytes) -> None:
    """CommonMark with tables and front matter."""
    check_document(data, DocumentFormat.MARKDOWN)


def html(data: bytes) -> None:
    """HTML, also malformed."""
    check_document(data, DocumentFormat.HTML)


def csv(data: bytes) -> None:
    """Tables with any delimiter."""
    check_document(data, DocumentFormat.CSV)


def json_text(data: bytes) -> None:
    """JSON and JSON Lines."""
    check_document(data, DocumentFormat.JSON)


def docx_document(data: bytes) -> None:
    """The main part of a DOCX file, in a valid package."""
    check_document(docx(data.decode("utf-8", "replace")), DocumentFormat.DOCX)


def docx_package(data: bytes) -> None:
    """A whole DOCX file, after the signature of a ZIP file."""
    check_document(b"PK\x03\x04" + data, DocumentFormat.DOCX)


def pdf_lines(data: bytes) -> None:
    """Text lines of PDF pages: each a font size, a vertical position and a text; an empty line ends a page."""
    pages: list[list[TextLine]] = [[]]
    for line in data.decode("utf-8", "replace").split("\n"):
        if not line:
            pages.append([])
        elif len(line) >= 2:
            pages[-1].append(TextLine(line[2:], ord(line[0]) % 64 / 2, ord(line[1]) % 128 * 8.0))
    for block in blocks_from_lines(pages):
        assert 0 <= block.level <= 9
        check_storable(block.text)
