"""DOCX (Office Open XML, ECMA-376): the text of a word processing document."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import Final
from xml.parsers import expat

from storage.document_reader.base.blocks import Block
from storage.document_reader.base.errors import UnreadableDocument
from storage.document_reader.formats.docx_body import BodyHandler
from storage.document_reader.formats.docx_package import Package
from storage.document_reader.formats.docx_styles import StylesHandler

DAMAGED: Final = "The DOCX file is damaged"
NO_DOCX: Final = "The file is not a DOCX document"
OLD_OR_ENCRYPTED: Final = "The Word document is encrypted or in the old format"

_COMPOUND_FILE: Final = bytes.fromhex("d0cf11e0a1b11ae1")
"""The first bytes of DOC files, and of DOCX files with a password."""
_ZIP: Final = b"PK"
_FAULTS: Final = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, KeyError, NotImplementedError, OSError, ValueError),
    expat.ExpatError,
)
"""Errors of zipfile for damaged files (first line), and of the XML parser."""


def blocks_from_docx(data: bytes, unpacked_bytes: int) -> Iterator[Block]:
    """Returns headings (by style or outline level), paragraphs and table rows, then the notes; deleted text is left
    out. The parts that are read may unpack to `unpacked_bytes`."""
    if data.startswith(_COMPOUND_FILE):
        raise UnreadableDocument(OLD_OR_ENCRYPTED)
    try:
        package = Package(data, unpacked_bytes)
        styles = StylesHandler()
        for name in package.related("styles"):
            for _ in package.read(name, styles):
                pass
        for name in (package.main, *package.related("footnotes"), *package.related("endnotes")):
            body = BodyHandler(styles)
            for _ in package.read(name, body):
                yield from body.take_blocks()
    except _FAULTS as error:
        is_one = data.startswith(_ZIP) and not isinstance(
            error, KeyError
        )  # of the main part: that of a spreadsheet, say
        raise UnreadableDocument(DAMAGED if is_one else NO_DOCX, type(error).__name__) from error
