"""Knowledge documents and searches in bodies, query parameters and responses."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from api.schemas.base import Body, Id, IdView, Instant, Name, Paging, QueryId, View
from api.schemas.file_upload import FileUpload
from storage.document_reader.base.media_types import TYPES_OF_SUFFIXES, format_of
from storage.knowledge.documents import Document, DocumentStatus
from storage.knowledge.passages import FoundPassage

MIME_TYPES: Final = (
    "text/plain",
    "text/markdown",
    "text/html",
    "text/csv",
    "application/json",
    "application/pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
)
"""The standard media types; others of the same formats are accepted, too."""
MAX_QUERY: Final = 1000


def _check_readable(text: str) -> str:
    if format_of(text) is None:
        raise PydanticCustomError(
            "mime_type", "Must be the type of a text, Markdown, HTML, CSV, JSON, PDF or DOCX file"
        )
    return text


_MIME_PATTERN: Final = rf"^({'|'.join(MIME_TYPES).replace('.', '[.]')})(;.*)?$"


class KnowledgeDocumentCreate(FileUpload):
    """A new document for an agent."""

    types_of_suffixes = TYPES_OF_SUFFIXES

    agent_id: Id = Field(description="Agent that may search it; must have knowledgeSearchInstructions")
    name: Name = Field(description="Name of the document in search results")
    mime_type: Annotated[str, Field(max_length=255), AfterValidator(_check_readable)] = Field(
        description="Type of a text, Markdown, HTML, CSV, JSON, PDF or DOCX file; that of a text may have a `charset`",
        json_schema_extra={"pattern": _MIME_PATTERN, "example": "text/plain; charset=utf-8"},
    )


class KnowledgeQuery(Paging):
    """Query parameters of the list of documents."""

    agent_id: QueryId | None = Field(None, description="Documents of this agent")


class KnowledgeDocument(View):
    """A document that an agent can search once it is ready."""

    id: IdView
    agent_id: IdView
    name: str
    filename: str
    mime_type: str
    file_size: int = Field(description="Bytes")
    status: DocumentStatus
    chunk_count: int = Field(description="Number of passages that are stored so far")
    error: str | None = Field(description="Why the document has failed")
    created_at: Instant
    updated_at: Instant

    @classmethod
    def of(cls, stored: Document) -> KnowledgeDocument:
        """Returns the view of a stored document."""
        return cls.model_validate(stored)


class KnowledgeSearch(Body):
    """A search in an agent's documents."""

    agent_id: Id
    query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY)] = Field(description="Words or a question")
    top_k: Annotated[int, Field(ge=1, le=10)] = Field(5, description="Maximum number of results")


Share = Annotated[float, Field(ge=0, le=1)]


class KnowledgeResult(View):
    """A passage that matches the query."""

    content: str
    document: str = Field(description="Name of the document")
    score: Share = Field(description="Relevance")
    document_id: IdView = Field(description="The document, or the oldest one of several with the same file")
    position: int = Field(description="Position of the passage in its document, from 0 on")
    word_score: Share = Field(description="Share of the score by the words of the query")
    meaning_score: Share | None = Field(
        description="Share of the score by the meaning; null if the search was by words alone"
    )
    words: list[str] = Field(description="Words of the query that the passage has, perhaps with other endings")

    @classmethod
    def of(cls, found: FoundPassage) -> KnowledgeResult:
        """Returns the view of a found passage."""
        return cls(
            content=found.content,
            document=found.document,
            score=round(found.score, 4),
            document_id=found.document_id,
            position=found.position,
            word_score=round(found.by_words, 4),
            meaning_score=None if found.by_meaning is None else round(found.by_meaning, 4),
            words=list(found.words),
        )
