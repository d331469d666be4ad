"""Documents and their passages."""

from __future__ import annotations

import sqlalchemy as sa

from storage.tables.columns import Id, UtcTime, metadata, organization_column

knowledge_documents = sa.Table(
    "knowledge_documents",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("content_id", Id, nullable=False),
    organization_column(),
    sa.Column("agent_id", Id, sa.ForeignKey("agents.id", ondelete="CASCADE"), nullable=False),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("filename", sa.String, nullable=False),
    sa.Column("mime_type", sa.String, nullable=False),
    sa.Column("file_size", sa.Integer, nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("status", sa.String, nullable=False),
    sa.Column("chunk_count", sa.Integer, nullable=False),
    sa.Column("error", sa.String),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Column("file_removed_at", UtcTime),
    sa.Index(None, "organization_id", "created_at", "id"),
    sa.Index("ix_knowledge_documents_agent_id_sha256", "agent_id", "sha256"),
    sa.Index("ix_knowledge_documents_content_id_created_at", "content_id", "created_at", "id"),
    sa.Index(None, "status", "created_at"),
)
"""Documents of one agent with the same file share a content: `content_id` is the id of the first one, which may have
been deleted. The file and the passages have this id. A trigger inserts it into `knowledge_removals` when its last
document is deleted."""

knowledge_chunks = sa.Table(
    "knowledge_chunks",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("document_id", Id, nullable=False),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("content", sa.String, nullable=False),
    sa.UniqueConstraint("document_id", "position"),
)
"""The passages of documents; `document_id` is their `content_id`. The full-text index `knowledge_index` (FTS5; its
rowid is the chunk's id) has the columns `agent` and `terms`; a trigger deletes its rows with those of this table. There
is no foreign key, because deleting the chunks of a large document takes seconds, so that batches delete them."""

knowledge_removals = sa.Table(
    "knowledge_removals",
    metadata,
    sa.Column("document_id", Id, primary_key=True),
)
"""Contents without documents, whose chunks and file are still to be removed; and files that are not needed, because
their document shares the content of another one."""

knowledge_contents = sa.Table(
    "knowledge_contents",
    metadata,
    sa.Column("content_id", Id, primary_key=True),
    sa.Column("language", sa.String, nullable=False),
    sa.Column("vectors_by", sa.String),
    sa.Column("vectors_whole", sa.Boolean, nullable=False, server_default=sa.false()),
)
"""Index state of ready contents: the language of their stemmed terms, the model of their vectors, and true if each
passage has one. A trigger deletes a row with its `knowledge_removals`."""

knowledge_vectors = sa.Table(
    "knowledge_vectors",
    metadata,
    sa.Column("chunk_id", sa.Integer, primary_key=True),
    sa.Column("vector", sa.LargeBinary, nullable=False),
)
"""Vectors of passages by the content's model, in the format of its implementation."""
