"""What a file is by its first bytes, when these say that it is not what its sender calls it."""

from __future__ import annotations

from typing import Final

from storage.document_reader.base.errors import Unreadable
from storage.document_reader.base.media_types import Kind

_PICTURE: Final = "a picture"
_SIGNATURES: Final = (
    (b"%PDF-", "a PDF", Kind.PDF),
    (b"PK\x03\x04", "a zip file, as DOCX is", Kind.DOCX),
    (bytes.fromhex("d0cf11e0a1b11ae1"), "an Office document of the old format, or encrypted", Kind.DOCX),
    (b"{\\rtf", "an RTF document", None),
    (b"\x89PNG\r\n", _PICTURE, None),
    (b"\xff\xd8\xff", _PICTURE, None),
    (b"GIF8", _PICTURE, None),
    (b"\x1f\x8b\x08", "a packed file", None),
    (b"7z\xbc\xaf", "a packed file", None),
)
"""First bytes, what they say, and what reads it."""
_NAMES: Final = {
    Kind.TEXT: "text",
    Kind.MARKDOWN: "Markdown",
    Kind.HTML: "HTML",
    Kind.CSV: "CSV",
    Kind.JSON: "JSON",
    Kind.PDF: "PDF",
    Kind.DOCX: "DOCX",
}


def refuse_another(data: bytes, kind: Kind) -> None:
    """Raises `Unreadable` for a file that is unmistakably of another kind: read as this one, it would give nonsense."""
    start = data[:64].lstrip()
    for signature, what, reader in _SIGNATURES:
        if reader is not kind and start.startswith(signature):
            raise Unreadable(f"The file is {what}; its mimeType says {_NAMES[kind]}")
