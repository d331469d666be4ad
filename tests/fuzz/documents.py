"""Files that organizations upload: whatever they hold, there are passages that can be stored, or a reason."""

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
from tests.fuzz.invariants import storable
from tests.storage.document_reader.office_files import docx

LIMITS: Final = ReadLimits(characters=400_000, unpacked_bytes=4 * 2**20)
_LONGEST_PASSAGE: Final = 200_000
"""Bytes: 200 words of 60 characters under headings and the terms to find them by, as JSON may spell them."""


def read(data: bytes, kind: DocumentFormat) -> None:
    """As the worker reads it. Only `UnreadableDocument` may be raised."""
    characters = 0
    try:
        blocks = list(read_blocks(data, kind, LIMITS))
    except UnreadableDocument as unreadable:
        storable(unreadable.message)
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
        storable(chunk.text)
        assert len(line) <= _LONGEST_PASSAGE


def text(data: bytes) -> None:
    """Plain text in any encoding."""
    read(data, DocumentFormat.TEXT)


def markdown(data: bytes) -> None:
    """CommonMark with tables and front matter."""
    read(data, DocumentFormat.MARKDOWN)


def html(data: bytes) -> None:
    """HTML as strangers write it."""
    read(data, DocumentFormat.HTML)


def csv(data: bytes) -> None:
    """Tables with any delimiter."""
    read(data, DocumentFormat.CSV)


def json_text(data: bytes) -> None:
    """JSON, and JSON lines."""
    read(data, DocumentFormat.JSON)


def docx_document(data: bytes) -> None:
    """The main part of a DOCX file, in a package that is sound."""
    read(docx(data.decode("utf-8", "replace")), DocumentFormat.DOCX)


def docx_package(data: bytes) -> None:
    """A file that says that it is DOCX."""
    read(b"PK\x03\x04" + data, DocumentFormat.DOCX)


def pdf_lines(data: bytes) -> None:
    """Lines as a PDF's pages hold them: each a size, a height and a text; an empty one ends a page."""
    pages: list[list[TextLine]] = [[]]
    for line in data.decode("utf-8", "replace").split("\n"):
        if not line:
            pages.append([])
        elif len(line) >= 2:
            pages[-1].append(TextLine(line[2:], ord(line[0]) % 64 / 2, ord(line[1]) % 128 * 8.0))
    for block in blocks_from_lines(pages):
        assert 0 <= block.level <= 9
        storable(block.text)
