"""Tools, knowledge, background sounds, answers to repeated requests, and the timeline of a call."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the tables, those first that others refer to."""
    _idempotent_answers()
    _tools()
    _knowledge_documents()
    _knowledge_chunks()
    _background_sounds()
    with op.batch_alter_table("calls") as calls:
        calls.add_column(sa.Column("timeline", sa.JSON(), nullable=False, server_default="[]"))


def _idempotent_answers() -> None:
    op.create_table(
        "idempotent_answers",
        sa.Column("organization_id", sa.String(length=36), nullable=False),
        sa.Column("method", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        _organization("idempotent_answers"),
        sa.PrimaryKeyConstraint("organization_id", "method", "path", "key", name="pk_idempotent_answers"),
    )
    op.create_index("ix_idempotent_answers_created_at", "idempotent_answers", ["created_at"], unique=False)


def _tools() -> None:
    op.create_table(
        "tools",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("organization_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("description", sa.String(), nullable=True),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        _organization("tools"),
        sa.PrimaryKeyConstraint("id", name="pk_tools"),
    )
    _newest_first("tools")


def _knowledge_documents() -> None:
    op.create_table(
        "knowledge_documents",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("organization_id", sa.String(length=36), nullable=False),
        sa.Column("agent_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("filename", sa.String(), nullable=False),
        sa.Column("mime_type", sa.String(), nullable=False),
        sa.Column("file_size", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("chunk_count", sa.Integer(), nullable=False),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        _organization("knowledge_documents"),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name="fk_knowledge_documents_agent_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_knowledge_documents"),
    )
    _newest_first("knowledge_documents")
    op.create_index("ix_knowledge_documents_agent_id", "knowledge_documents", ["agent_id"], unique=False)


def _knowledge_chunks() -> None:
    """The chunks and their full-text index, which follows them by triggers."""
    op.create_table(
        "knowledge_chunks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("document_id", sa.String(length=36), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("content", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["document_id"],
            ["knowledge_documents.id"],
            name="fk_knowledge_chunks_document_id",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_knowledge_chunks"),
        sa.UniqueConstraint("document_id", "position", name="uq_knowledge_chunks_document_id_position"),
    )
    op.execute(
        "CREATE VIRTUAL TABLE knowledge_index USING fts5(content, content='knowledge_chunks', content_rowid='id', "
        "tokenize='porter unicode61 remove_diacritics 2')"
    )
    op.execute(
        "CREATE TRIGGER knowledge_chunks_added AFTER INSERT ON knowledge_chunks BEGIN "
        "INSERT INTO knowledge_index(rowid, content) VALUES (new.id, new.content); END"
    )
    op.execute(
        "CREATE TRIGGER knowledge_chunks_removed AFTER DELETE ON knowledge_chunks BEGIN "
        "INSERT INTO knowledge_index(knowledge_index, rowid, content) VALUES ('delete', old.id, old.content); END"
    )


def _background_sounds() -> None:
    op.create_table(
        "background_sounds",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("organization_id", sa.String(length=36), nullable=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("description", sa.String(), nullable=True),
        sa.Column("file_size", sa.Integer(), nullable=False),
        sa.Column("duration_ms", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        _organization("background_sounds"),
        sa.PrimaryKeyConstraint("id", name="pk_background_sounds"),
    )
    _newest_first("background_sounds")


def _organization(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["organization_id"], ["organizations.id"], name=f"fk_{table}_organization_id", ondelete="CASCADE"
    )


def _newest_first(table: str) -> None:
    op.create_index(
        f"ix_{table}_organization_id_created_at_id", table, ["organization_id", "created_at", "id"], unique=False
    )
