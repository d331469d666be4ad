"""Knowledge documents and what a search of them takes and finds."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Final

from tests.contract.kinds import Choice, Form, Id, Own, Real, Text, Texts, Time, Whole
from tests.contract.table import Field, Record, Table

MIME_TYPES: Final = (
    *("text/plain", "text/markdown", "text/html", "text/csv", "application/json", "application/pdf"),
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
)
CONTENT: Final = b"# Prices\n\nA night costs 120 francs.\n"
NO_BASE64: Final = ("%%%", "QUJ", "Q*==", "QUJD\n", "-_-_", "QQ=", " QUJD")


def _least() -> dict[str, Any]:
    return {
        "agentId": Own("agent"),
        "name": "Prices",
        "filename": "prices.md",
        "mimeType": "text/markdown",
        "fileSize": len(CONTENT),
        "fileBase64": b64encode(CONTENT).decode(),
    }


DOCUMENTS: Final = Table(
    noun="Knowledge document",
    path="/knowledge",
    fields=(
        Field("agentId", Id("agent", known=False), required=True),
        Field("name", Text(1, 255), required=True),
        Field("filename", Text(1, 255), required=True),
        Field(
            "mimeType",
            Form(MIME_TYPES, ("text", "image/png", "application/zip", "text/plain2", "audio/wav")),
            required=True,
        ),
        Field("fileSize", Whole(len(CONTENT), len(CONTENT)), required=True),
        Field(
            "fileBase64", Form((b64encode(CONTENT).decode(),), NO_BASE64, may_be_empty=True), required=True, secret=True
        ),
    ),
    changes=(),
    told=(
        Field("id", Id("knowledge document"), required=True),
        Field("status", Choice(("pending", "processing", "ready", "failed")), required=True),
        Field("chunkCount", Whole(0, None), required=True),
        Field("error", Text()),
        Field("createdAt", Time(), required=True),
        Field("updatedAt", Time(), required=True),
    ),
    least=_least,
)
SEARCH: Final = (
    Field("agentId", Id("agent", known=False), required=True),
    Field("query", Text(1, 1000), required=True),
    Field("topK", Whole(1, 10), 5),
)
FOUND: Final = Record(
    (
        Field("content", Text(), required=True),
        Field("document", Text(), required=True),
        Field("score", Real(0, 1), required=True),
        Field("documentId", Id("knowledge document", known=False), required=True),
        Field("position", Whole(0, None), required=True),
        Field("wordScore", Real(0, 1), required=True),
        Field("meaningScore", Real(0, 1)),
        Field("words", Texts(), required=True),
    )
)
