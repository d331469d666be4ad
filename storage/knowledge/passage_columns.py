"""The statements that read passages, common to the text indexes."""

from __future__ import annotations

from typing import Final

from storage.document_reader.terms.tokenizer import ENGLISH

MAX_COUNTED: Final = 2_000
"""Upper limit when passages with a term are counted: higher counts hardly change a score."""
MAX_RANKED: Final = 3_000
"""Passages that the index ranks at most, when even the rarest term of a query is in more: 10 ms."""
LANGUAGE: Final = f"coalesce((SELECT language FROM knowledge_contents WHERE content_id = {{}}), '{ENGLISH}')"
PASSAGE_COLUMNS: Final = (
    "SELECT chunk.id, chunk.content, document.name, found.terms, document.id AS document, chunk.position, "
    f"{LANGUAGE.format('chunk.document_id')} AS language "
)
IS_OLDEST: Final = (
    "document.id = (SELECT same.id FROM knowledge_documents AS same "
    "WHERE same.content_id = chunk.document_id ORDER BY same.created_at, same.id LIMIT 1) "
)
"""Of the documents that share a content."""
