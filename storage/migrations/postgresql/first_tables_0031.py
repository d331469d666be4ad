"""The tables of revision 0031, at which PostgreSQL begins: there are no older installations on it."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0031"
down_revision = None

QUOTAS = {
    "agents": ("agents", "1", None),
    "tools": ("tools", "1", None),
    "documents": ("knowledge_documents", "1", None),
    "sounds": ("background_sounds", "1", None),
    "phone_numbers": ("phone_numbers", "1", None),
    "api_keys": ("api_keys", "({row}.revoked_at IS NULL)::int", "revoked_at"),
    "document_bytes": (
        "knowledge_documents",
        "CASE WHEN {row}.file_removed_at IS NULL THEN {row}.file_size ELSE 0 END",
        "file_removed_at",
    ),
    "sound_bytes": ("background_sounds", "{row}.stored_bytes", None),
    "hold_music_bytes": ("hold_music", "{row}.stored_bytes", None),
    "idempotent_answer_bytes": (
        "idempotent_answers",
        "length({row}.body) + length({row}.key) + length({row}.path)",
        "body",
    ),
    "recording_bytes": ("recording_sizes", "coalesce({row}.bytes, 0)", "bytes"),
}
"""For each counter: the table of its rows, what a row counts, and the column that changes it."""
COUNTED_AS = {"hold_music_bytes": "sound_bytes"}
KEPT_IN_MEMORY = {
    "organizations": (
        "name, plan, max_calls, outbound_prefixes, outbound_per_minute, keep_recordings_days, keep_transcripts_days, "
        "keep_calls_days, redact, redact_dialled, quotas"
    ),
    "api_keys": "revoked_at, name, requests_per_minute",
    "users": "role, organization_id, disabled_at, password_hash",
    "agents": None,
    "tools": None,
    "phone_numbers": None,
    "phone_number_sources": None,
    "trunk_grants": None,
    "remote_models": None,
    "webhook_endpoints": None,
    "knowledge_documents": "status",
}
"""Tables whose changes servers must learn of, and the columns, where not all."""


def upgrade() -> None:
    """All tables are empty."""
    for name in ("tables_0031.sql", "triggers_0031.sql", "statistics_0031.sql"):
        op.get_bind().exec_driver_sql(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    for counter, (table, worth, column) in QUOTAS.items():
        _count(counter, table, worth, column)
    _notify()


def _count(counter: str, table: str, worth: str, column: str | None) -> None:
    quota, of_new, of_old = COUNTED_AS.get(counter, counter), worth.format(row="new"), worth.format(row="old")
    op.execute(
        f"CREATE FUNCTION quota_{counter}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF tg_op = 'INSERT' THEN PERFORM count_quota(new.organization_id, '{quota}', ({of_new})::bigint); "
        f"ELSIF tg_op = 'DELETE' THEN PERFORM count_quota(old.organization_id, '{quota}', -({of_old})::bigint); "
        f"ELSE PERFORM count_quota(old.organization_id, '{quota}', ({of_new})::bigint - ({of_old})::bigint); "
        "END IF; RETURN NULL; END $$"
    )
    events = "INSERT OR DELETE" if column is None else f"INSERT OR DELETE OR UPDATE OF {column}"
    op.execute(
        f"CREATE TRIGGER quota_{counter} AFTER {events} ON {table} FOR EACH ROW EXECUTE FUNCTION quota_{counter}()"
    )


def _notify() -> None:
    op.execute(
        "CREATE FUNCTION notify_servers() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "PERFORM pg_notify('trunkline_changes', tg_table_name); RETURN NULL; END $$"
    )
    for table, columns in KEPT_IN_MEMORY.items():
        update = "UPDATE" if columns is None else f"UPDATE OF {columns}"
        op.execute(
            f"CREATE TRIGGER changed AFTER INSERT OR DELETE OR {update} ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION notify_servers()"
        )
    op.execute(
        "CREATE TRIGGER session_ended AFTER DELETE ON user_sessions "
        "FOR EACH STATEMENT EXECUTE FUNCTION notify_servers()"
    )
    op.execute(
        "CREATE TRIGGER removed AFTER INSERT ON recording_removals FOR EACH STATEMENT EXECUTE FUNCTION notify_servers()"
    )
    op.execute(
        "CREATE TRIGGER call_queued AFTER INSERT ON calls FOR EACH ROW WHEN (new.status = 'queued') "
        "EXECUTE FUNCTION notify_servers()"
    )
