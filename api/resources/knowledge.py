"""Handlers of `/knowledge`: documents and their search."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import sqlalchemy as sa

from api.routing.route import (
    CheckedRequest,
    DataResponse,
    DeletedResponse,
    NoQuery,
    PageResponse,
    RequestContext,
    ResultsResponse,
    Route,
    ViewPage,
)
from api.schemas.file_upload import MAX_UPLOAD_BODY
from api.schemas.knowledge import (
    KnowledgeDocument,
    KnowledgeDocumentCreate,
    KnowledgeQuery,
    KnowledgeResult,
    KnowledgeSearch,
)
from calls.knowledge import search as knowledge_search
from calls.live.document_feed import DocumentFeed
from config.errors import FieldProblem, Invalid, NotFound
from storage.agents import agents
from storage.agents.agents import Agent
from storage.knowledge import documents, files
from storage.knowledge.documents import DocumentFields
from storage.knowledge.passages import FoundPassage


@dataclass(frozen=True)
class StoredDocumentFile:
    """The file of an upload, stored before its row. `sha256` is in hex."""

    id: str
    sha256: str


async def store_file(checked: CheckedRequest[KnowledgeDocumentCreate, NoQuery]) -> StoredDocumentFile:
    """Store the file of an upload. Raises `NotFound` or `Invalid` unless its agent can search documents."""
    services, body = checked.services, checked.body
    await services.database.read(
        lambda conn: _agent_with_knowledge(conn, checked.owner, body.agent_id), owner=checked.owner
    )
    document_id = str(uuid4())
    sha256 = await asyncio.to_thread(_store, services.settings.data_dir, document_id, body.file_base64)
    return StoredDocumentFile(document_id, sha256)


def _store(data_dir: Path, document_id: str, content: bytes) -> str:
    files.write(data_dir, document_id, content)
    return hashlib.sha256(content).hexdigest()


async def remove_file(checked: CheckedRequest[KnowledgeDocumentCreate, NoQuery], file: StoredDocumentFile) -> None:
    """Remove the file of an upload whose row could not be stored."""
    await asyncio.to_thread(files.remove, checked.services.settings.data_dir, file.id)


def create(context: RequestContext[KnowledgeDocumentCreate, NoQuery]) -> KnowledgeDocument:
    """POST /knowledge. The agent is checked again, because it may have changed since the file was stored."""
    body, conn, owner = context.body, context.conn, context.owner
    file: StoredDocumentFile = context.prepared
    fields = DocumentFields(
        agent_id=_agent_with_knowledge(conn, owner, body.agent_id).id,
        name=body.name,
        filename=body.filename,
        mime_type=body.mime_type,
        file_size=body.file_size,
        sha256=file.sha256,
    )
    stored = documents.create(conn, owner, file.id, fields)
    context.after_commit.extend((context.services.documents_changed, partial(_feed(context).on_changed, stored)))
    return KnowledgeDocument.of(stored)


def _feed(context: RequestContext[Any, Any]) -> DocumentFeed:
    return DocumentFeed(context.services.events)


def page(context: RequestContext[None, KnowledgeQuery]) -> ViewPage:
    """GET /knowledge"""
    query, conn, owner = context.query, context.conn, context.owner
    agent_id = None if query.agent_id is None else _agent(conn, owner, query.agent_id).id
    found = documents.page(conn, owner, limit=query.limit, offset=query.offset, agent_id=agent_id)
    return ViewPage(map(KnowledgeDocument.of, found.items), found.total)


def get(context: RequestContext[None, NoQuery]) -> KnowledgeDocument:
    """GET /knowledge/{id}"""
    stored = documents.get(context.conn, context.owner, context.item)
    if stored is None:
        raise NotFound("Knowledge document not found")
    return KnowledgeDocument.of(stored)


def delete(context: RequestContext[None, NoQuery]) -> None:
    """DELETE /knowledge/{id}"""
    if not documents.delete(context.conn, context.owner, context.item):
        raise NotFound("Knowledge document not found")
    tell = partial(_feed(context).on_deleted, context.owner, context.item)
    context.after_commit.extend((context.services.documents_changed, tell))


async def run_search(checked: CheckedRequest[KnowledgeSearch, NoQuery]) -> list[FoundPassage]:
    """Search before the transaction, because an embedding model may have to embed the query."""
    services, body = checked.services, checked.body
    agent = await services.database.read(lambda conn: _agent(conn, checked.owner, body.agent_id), owner=checked.owner)
    knowledge = services.knowledge or knowledge_search.KnowledgeSearch(services.database)
    return await knowledge.search(agent.id, body.query, body.top_k, owner=checked.owner)


def search(context: RequestContext[KnowledgeSearch, NoQuery]) -> list[KnowledgeResult]:
    """POST /knowledge/search"""
    found: list[FoundPassage] = context.prepared
    return [KnowledgeResult.of(each) for each in found]


def _agent(conn: sa.Connection, owner: str, agent_id: UUID) -> Agent:
    agent = agents.get(conn, owner, str(agent_id))
    if agent is None:
        raise NotFound("Agent not found")
    return agent


def _agent_with_knowledge(conn: sa.Connection, owner: str, agent_id: UUID) -> Agent:
    """The agent. Raises `NotFound`; `Invalid` if it has no knowledgeSearchInstructions."""
    agent = _agent(conn, owner, agent_id)
    if not agent.knowledge_search_instructions:
        raise Invalid([FieldProblem("agentId", "The agent has no knowledgeSearchInstructions")])
    return agent


ROUTES = (
    Route(
        method="POST",
        path="/knowledge",
        quotas=("documents", "document_bytes"),
        name="createKnowledgeDocument",
        role="editor",
        tag="Knowledge",
        summary="Upload a document for an agent",
        description="Text, Markdown, HTML, CSV, JSON, PDF or DOCX, at most 20 MiB. The response comes at once, with "
        "the status `pending`; then the document is `processing`, and finally `ready`, or `failed` if it cannot be "
        "read. A second upload of the same file for the same agent is a separate document with the passages of the "
        "first: it is `ready` as soon as the first is, and searches find each passage once. The agent must have "
        "knowledgeSearchInstructions.",
        handler=create,
        prepare=store_file,
        undo=remove_file,
        body=KnowledgeDocumentCreate,
        example={
            "agentId": "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed",
            "name": "Fees",
            "filename": "fees.txt",
            "mimeType": "text/plain",
            "fileSize": 27,
            "fileBase64": "QSBiZXJ0aCBjb3N0cyB0d2VudHkgZXVyb3Mu",
        },
        max_body=MAX_UPLOAD_BODY,
        response=DataResponse(KnowledgeDocument),
        status=201,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/knowledge",
        name="listKnowledgeDocuments",
        role="viewer",
        tag="Knowledge",
        summary="List documents, newest first",
        handler=page,
        query=KnowledgeQuery,
        response=PageResponse(KnowledgeDocument),
        errors=(404,),
    ),
    Route(
        method="POST",
        path="/knowledge/search",
        name="searchKnowledge",
        role="viewer",
        tag="Knowledge",
        summary="Search the documents of an agent",
        description="The passages of the agent's ready documents that match best, the best first. A passage is scored "
        "by the words of the query in it, rare words more than frequent ones; letter case, accents and the endings of "
        "words in the agent's language are ignored. With an embedding model it is scored by its meaning as well.",
        handler=search,
        prepare=run_search,
        body=KnowledgeSearch,
        example={
            "agentId": "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed",
            "query": "What does a berth cost?",
            "topK": 3,
        },
        response=ResultsResponse(KnowledgeResult),
        read_only=True,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/knowledge/{id}",
        name="getKnowledgeDocument",
        role="viewer",
        tag="Knowledge",
        summary="Get a document",
        handler=get,
        item="Knowledge document",
        response=DataResponse(KnowledgeDocument),
    ),
    Route(
        method="DELETE",
        path="/knowledge/{id}",
        name="deleteKnowledgeDocument",
        role="editor",
        tag="Knowledge",
        summary="Delete a document",
        description="Its file and its passages are removed, and searches no longer find it.",
        handler=delete,
        item="Knowledge document",
        response=DeletedResponse(),
    ),
)
