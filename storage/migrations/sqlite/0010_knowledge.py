"""Vectors of passages; documents of the same file share one content."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Documents of the same file share its passages, which are removed with the last of these documents."""
    _contents()
    _meanings()


def _contents() -> None:
    op.add_column(
        "knowledge_documents", sa.Column("content_id", sa.String(length=36), nullable=False, server_default="")
    )
    op.execute("UPDATE knowledge_documents SET content_id = id")
    op.create_index(
        "ix_knowledge_documents_content_id_created_at", "knowledge_documents", ["content_id", "created_at", "id"]
    )
    op.drop_index("ix_knowledge_documents_agent_id", "knowledge_documents")
    op.create_index("ix_knowledge_documents_agent_id_sha256", "knowledge_documents", ["agent_id", "sha256"])
    op.execute("DROP TRIGGER knowledge_documents_removed")
    op.execute(
        "CREATE TRIGGER knowledge_documents_removed AFTER DELETE ON knowledge_documents "
        "WHEN NOT EXISTS (SELECT 1 FROM knowledge_documents WHERE content_id = old.content_id) BEGIN "
        "INSERT INTO knowledge_removals(document_id) VALUES (old.content_id); END"
    )


def _meanings() -> None:
    """The language in which the terms of a content are indexed, and the vectors of its passages. Existing contents have
    neither: they are indexed again after the start."""
    op.create_table(
        "knowledge_contents",
        sa.Column("content_id", sa.String(length=36), nullable=False),
        sa.Column("language", sa.String(), nullable=False),
        sa.Column("vectors_by", sa.String(), nullable=True),
        sa.Column("vectors_whole", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.PrimaryKeyConstraint("content_id", name="pk_knowledge_contents"),
    )
    op.create_table(
        "knowledge_vectors",
        sa.Column("chunk_id", sa.Integer(), nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("chunk_id", name="pk_knowledge_vectors"),
    )
    op.execute("DROP TRIGGER knowledge_chunks_removed")
    op.execute(
        "CREATE TRIGGER knowledge_chunks_removed AFTER DELETE ON knowledge_chunks BEGIN "
        "DELETE FROM knowledge_index WHERE rowid = old.id; "
        "DELETE FROM knowledge_vectors WHERE chunk_id = old.id; END"
    )
    op.execute(
        "CREATE TRIGGER knowledge_contents_removed AFTER DELETE ON knowledge_removals BEGIN "
        "DELETE FROM knowledge_contents WHERE content_id = old.document_id; END"
    )
