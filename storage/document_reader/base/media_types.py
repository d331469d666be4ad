"""Which files can be read, told by their media type."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """What reads the file."""

    TEXT = "text"
    MARKDOWN = "markdown"
    HTML = "html"
    CSV = "csv"
    JSON = "json"
    PDF = "pdf"
    DOCX = "docx"


_KINDS: Final = {
    "text/plain": Kind.TEXT,
    "text/markdown": Kind.MARKDOWN,
    "text/x-markdown": Kind.MARKDOWN,
    "text/html": Kind.HTML,
    "application/xhtml+xml": Kind.HTML,
    "text/csv": Kind.CSV,
    "text/x-csv": Kind.CSV,
    "application/csv": Kind.CSV,
    "text/tab-separated-values": Kind.CSV,
    "application/json": Kind.JSON,
    "text/json": Kind.JSON,
    "application/x-ndjson": Kind.JSON,
    "application/jsonl": Kind.JSON,
    "application/pdf": Kind.PDF,
    "application/x-pdf": Kind.PDF,
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": Kind.DOCX,
}


def kind_of(mime_type: str) -> Kind | None:
    """The kind of a media type, in upper or lower case, with or without parameters; None when it cannot be read."""
    return _KINDS.get(mime_type.partition(";")[0].strip().lower())


def charset_of(mime_type: str) -> str | None:
    """The `charset` parameter of a media type (RFC 9110, section 8.3), without its quotes."""
    for parameter in mime_type.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip("\"'").strip() or None
    return None
