"""Users of the dashboard, and entries of the audit log that belong to no organization."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def _user_column() -> sa.Column[str]:
    return sa.Column("user_id", sa.String(length=36), nullable=False)


def _belongs_to_user(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=f"fk_{table}_user_id", ondelete="CASCADE")


def upgrade() -> None:
    """There are no users yet. Entries of the audit log keep their organizations."""
    op.create_table(
        "users",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("organization_id", sa.String(length=36), nullable=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("password_hash", sa.String(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_sign_in_at", sa.BigInteger(), nullable=True),
        sa.Column("disabled_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name="fk_users_organization_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_users"),
        sa.UniqueConstraint("name", name="uq_users_name"),
    )
    op.create_index("ix_users_organization_id_name", "users", ["organization_id", "name"], unique=False)
    op.create_table(
        "user_sessions",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        _user_column(),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_used_at", sa.BigInteger(), nullable=False),
        _belongs_to_user("user_sessions"),
        sa.PrimaryKeyConstraint("sha256", name="pk_user_sessions"),
    )
    op.create_index("ix_user_sessions_user_id", "user_sessions", ["user_id"], unique=False)
    op.create_table(
        "password_links",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        _user_column(),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        _belongs_to_user("password_links"),
        sa.PrimaryKeyConstraint("sha256", name="pk_password_links"),
    )
    op.create_index("ix_password_links_user_id", "password_links", ["user_id"], unique=False)
    with op.batch_alter_table("audit_entries") as entries:
        entries.alter_column("organization_id", existing_type=sa.String(length=36), nullable=True)
