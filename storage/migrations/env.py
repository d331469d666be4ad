"""Run by Alembic: migrates the connection that `storage.database.sqlite.migrate` hands over, in its transaction."""

from __future__ import annotations

from alembic import context

from storage.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
context.run_migrations()
