"""Tables of tools, knowledge documents, background sounds and idempotent responses; the timeline of calls; and webhook
attempts, which are rows from their scheduling on."""

from __future__ import annotations

from uuid import uuid4

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
    _knowledge_removals()
    _background_sounds()
    with op.batch_alter_table("calls") as calls:
        calls.add_column(sa.Column("timeline", sa.JSON(), nullable=False, server_default="[]"))
    _webhook_attempts()


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
    op.create_index(
        "ix_knowledge_documents_status_created_at", "knowledge_documents", ["status", "created_at"], unique=False
    )


def _knowledge_chunks() -> None:
    """The passages, and their full-text index; a trigger deletes the index entry of a deleted passage."""
    op.create_table(
        "knowledge_chunks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("document_id", sa.String(length=36), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("content", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_knowledge_chunks"),
        sa.UniqueConstraint("document_id", "position", name="uq_knowledge_chunks_document_id_position"),
    )
    op.execute(
        "CREATE VIRTUAL TABLE knowledge_index USING fts5(agent, terms, "
        "tokenize = \"unicode61 remove_diacritics 0 categories 'L* N* Co Mn Mc' tokenchars '-'\")"
    )
    op.execute(
        "CREATE TRIGGER knowledge_chunks_removed AFTER DELETE ON knowledge_chunks BEGIN "
        "DELETE FROM knowledge_index WHERE rowid = old.id; END"
    )


def _knowledge_removals() -> None:
    op.create_table(
        "knowledge_removals",
        sa.Column("document_id", sa.String(length=36), nullable=False),
        sa.PrimaryKeyConstraint("document_id", name="pk_knowledge_removals"),
    )
    op.execute(
        "CREATE TRIGGER knowledge_documents_removed AFTER DELETE ON knowledge_documents BEGIN "
        "INSERT INTO knowledge_removals(document_id) VALUES (old.id); END"
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


def _webhook_attempts() -> None:
    """The time of the next attempt moves from the deliveries to the attempts."""
    op.add_column("webhook_attempts", sa.Column("next_attempt_at", sa.BigInteger(), nullable=True))
    _attempts_to_come()
    op.create_index(
        "ix_webhook_attempts_due",
        "webhook_attempts",
        ["next_attempt_at"],
        unique=False,
        sqlite_where=sa.text("status = 'pending'"),
        postgresql_where=sa.text("status = 'pending'"),
    )
    op.drop_index("ix_webhook_deliveries_next_attempt_at", "webhook_deliveries")
    op.drop_column("webhook_deliveries", "attempts")
    op.drop_column("webhook_deliveries", "next_attempt_at")


def _attempts_to_come() -> None:
    conn = op.get_bind()
    waiting = conn.execute(
        sa.text(
            "SELECT id, attempts, created_at, next_attempt_at, (SELECT max(created_at + coalesce(duration_ms, 0)) "
            "FROM webhook_attempts WHERE delivery_id = webhook_deliveries.id) AS last_at "
            "FROM webhook_deliveries WHERE next_attempt_at IS NOT NULL"
        )
    ).all()
    for each in waiting:
        conn.execute(
            sa.text("UPDATE webhook_attempts SET next_attempt_at = :due WHERE delivery_id = :id AND attempt = :last"),
            {"due": each.next_attempt_at, "id": each.id, "last": each.attempts},
        )
        conn.execute(
            sa.text(
                "INSERT INTO webhook_attempts (id, delivery_id, attempt, status, manual, created_at, next_attempt_at) "
                "VALUES (:attempt_id, :id, :next, 'pending', :manual, :at, :due)"
            ),
            {
                "attempt_id": str(uuid4()),
                "id": each.id,
                "next": each.attempts + 1,
                "manual": False,
                "at": each.created_at if each.last_at is None else each.last_at + 1,
                "due": each.next_attempt_at,
            },
        )
