"""Document formats, by media type."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class DocumentFormat(StrEnum):
    """The format that selects a reader."""

    TEXT = "text"
    MARKDOWN = "markdown"
    HTML = "html"
    CSV = "csv"
    JSON = "json"
    PDF = "pdf"
    DOCX = "docx"


_KINDS: Final = {
    "text/plain": DocumentFormat.TEXT,
    "text/markdown": DocumentFormat.MARKDOWN,
    "text/x-markdown": DocumentFormat.MARKDOWN,
    "text/html": DocumentFormat.HTML,
    "application/xhtml+xml": DocumentFormat.HTML,
    "text/csv": DocumentFormat.CSV,
    "text/x-csv": DocumentFormat.CSV,
    "application/csv": DocumentFormat.CSV,
    "text/tab-separated-values": DocumentFormat.CSV,
    "application/json": DocumentFormat.JSON,
    "text/json": DocumentFormat.JSON,
    "application/x-ndjson": DocumentFormat.JSON,
    "application/jsonl": DocumentFormat.JSON,
    "application/pdf": DocumentFormat.PDF,
    "application/x-pdf": DocumentFormat.PDF,
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": DocumentFormat.DOCX,
}

TYPES_OF_SUFFIXES: Final = {
    ".txt": "text/plain",
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".html": "text/html",
    ".htm": "text/html",
    ".csv": "text/csv",
    ".tsv": "text/tab-separated-values",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".pdf": "application/pdf",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
}
"""Media types by the suffix of a file's name, lower case."""


def format_of(mime_type: str) -> DocumentFormat | None:
    """Returns the format of a media type, in any letter case, with or without parameters; None when it is not
    supported."""
    return _KINDS.get(mime_type.partition(";")[0].strip().lower())


def charset_of(mime_type: str) -> str | None:
    """Returns the `charset` parameter of a media type (RFC 9110, section 8.3) without quotes, None when it is
    absent."""
    for parameter in mime_type.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip("\"'").strip() or None
    return None
