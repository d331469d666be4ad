"""Document reader: the text of a file of any format as blocks, within limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from storage.document_reader.base.blocks import Block, normalize
from storage.document_reader.base.encoding import decode
from storage.document_reader.base.errors import NO_TEXT, TOO_DEEP, UnreadableDocument
from storage.document_reader.base.limits import ReadLimits
from storage.document_reader.base.magic_bytes import check_magic_bytes
from storage.document_reader.base.media_types import DocumentFormat


def read_blocks(data: bytes, kind: DocumentFormat, limits: ReadLimits, charset: str | None = None) -> Iterator[Block]:
    """Yields the file's blocks, normalized and not empty; `charset` is the declared one. Raises `UnreadableDocument`,
    also after some blocks, and when there is no text."""
    if not data.strip():
        raise UnreadableDocument(NO_TEXT)
    check_magic_bytes(data, kind)
    characters = 0
    readable = False
    try:
        for block in _blocks_of(data, kind, limits, charset):
            text = normalize(block.text)
            characters += len(text)
            if characters > limits.characters:
                raise UnreadableDocument(f"The file holds more than {limits.characters:,} characters of text")
            if text:
                readable = readable or any(map(str.isalnum, text))
                yield replace(block, text=text)
    except RecursionError as error:
        raise UnreadableDocument(TOO_DEEP) from error
    if not readable:
        raise UnreadableDocument(NO_TEXT)


def _blocks_of(data: bytes, kind: DocumentFormat, limits: ReadLimits, charset: str | None) -> Iterator[Block]:
    """The blocks by the format's reader. Readers are imported on demand, because all together take longer to load than
    most files to read."""
    match kind:
        case DocumentFormat.PDF:
            from storage.document_reader.formats.pdf import blocks_from_pdf

            return blocks_from_pdf(data, limits.pages)
        case DocumentFormat.DOCX:
            from storage.document_reader.formats.docx import blocks_from_docx

            return blocks_from_docx(data, limits.unpacked_bytes)
        case DocumentFormat.HTML:
            from storage.document_reader.formats.html import blocks_from_html, declared_charset

            return blocks_from_html(decode(data, charset or declared_charset(data)))
        case DocumentFormat.MARKDOWN:
            from storage.document_reader.formats.markdown import blocks_from_markdown

            return blocks_from_markdown(decode(data, charset))
        case DocumentFormat.CSV:
            from storage.document_reader.formats.csv import blocks_from_csv

            return blocks_from_csv(decode(data, charset))
        case DocumentFormat.JSON:
            from storage.document_reader.formats.json import blocks_from_json

            return blocks_from_json(decode(data, charset))
        case DocumentFormat.TEXT:
            from storage.document_reader.formats.text import blocks_from_text

            return blocks_from_text(decode(data, charset))
