"""Magic bytes: detects files whose first bytes contradict the declared media type."""

from __future__ import annotations

from typing import Final

from storage.document_reader.base.errors import UnreadableDocument
from storage.document_reader.base.media_types import DocumentFormat

_PICTURE: Final = "a picture"
_SIGNATURES: Final = (
    (b"%PDF-", "a PDF", DocumentFormat.PDF),
    (b"PK\x03\x04", "a zip file, as DOCX is", DocumentFormat.DOCX),
    (bytes.fromhex("d0cf11e0a1b11ae1"), "an Office document of the old format, or encrypted", DocumentFormat.DOCX),
    (b"{\\rtf", "an RTF document", None),
    (b"\x89PNG\r\n", _PICTURE, None),
    (b"\xff\xd8\xff", _PICTURE, None),
    (b"GIF8", _PICTURE, None),
    (b"\x1f\x8b\x08", "a packed file", None),
    (b"7z\xbc\xaf", "a packed file", None),
)
"""First bytes, the kind of file, and its format if it can be read."""
_NAMES: Final = {
    DocumentFormat.TEXT: "text",
    DocumentFormat.MARKDOWN: "Markdown",
    DocumentFormat.HTML: "HTML",
    DocumentFormat.CSV: "CSV",
    DocumentFormat.JSON: "JSON",
    DocumentFormat.PDF: "PDF",
    DocumentFormat.DOCX: "DOCX",
}


def check_magic_bytes(data: bytes, kind: DocumentFormat) -> None:
    """Raises `UnreadableDocument` for a file whose first bytes are those of another format."""
    start = data[:64].lstrip()
    for signature, what, reader in _SIGNATURES:
        if reader is not kind and start.startswith(signature):
            raise UnreadableDocument(f"The file is {what}; its mimeType says {_NAMES[kind]}")
