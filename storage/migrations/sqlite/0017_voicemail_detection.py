"""What an agent does when a voicemail answers its outbound call."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Agents that there are talk to voicemails, as before."""
    op.add_column("agents", sa.Column("voicemail_detection", sa.String(), nullable=False, server_default="off"))
    op.add_column("agents", sa.Column("voicemail_message", sa.String()))
