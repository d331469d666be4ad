"""Figures of each call beside its record, and their sums by quarter hours, which triggers update."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"

QUARTER_MS = 900_000
ALL = "''"
SCOPES = (
    (ALL, ALL),
    ("coalesce({row}.agent_id, '-')", ALL),
    (ALL, "coalesce({row}.phone_number_id, '-')"),
    ("coalesce({row}.agent_id, '-')", "coalesce({row}.phone_number_id, '-')"),
)
"""Agent and number of the sums that a call is part of; `-`: a call without one."""
GAP_BIN = (
    "CASE WHEN {ms} < 1000 THEN {ms} / 25 * 25 WHEN {ms} < 5000 THEN {ms} / 100 * 100 "
    "WHEN {ms} < 60000 THEN {ms} / 1000 * 1000 ELSE 60000 END"
)
SUMS = {
    "calls": "1",
    "status.{row}.status": "1",
    "ended.{row}.ended_reason": "1",
    "durationSeconds": "coalesce({row}.duration_seconds, 0)",
    "costMillionths": "CAST(round(coalesce({row}.cost, 0) * 1000000) AS INTEGER)",
    "turns": "{row}.turn_count",
    "interruptions": "{row}.interruptions",
    "interruptedCalls": "({row}.interruptions > 0)",
}


def upgrade() -> None:
    """Calls that there are get their figures from their timelines."""
    op.add_column("calls", sa.Column("interruptions", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("calls", sa.Column("response_gaps", sa.JSON(), nullable=False, server_default="[]"))
    op.add_column("calls", sa.Column("longest_gap_ms", sa.Integer()))
    op.execute(
        "UPDATE calls SET interruptions = figures.interruptions, longest_gap_ms = figures.longest, "
        "response_gaps = figures.gaps FROM (SELECT calls.id AS call_id, "
        "coalesce(sum(json_extract(turn.value, '$.interrupted')), 0) AS interruptions, "
        "max(max(json_extract(turn.value, '$.response_gap_ms'), 0)) AS longest, "
        "json_group_array(max(CAST(json_extract(turn.value, '$.response_gap_ms') AS INTEGER), 0)) "
        "FILTER (WHERE json_extract(turn.value, '$.response_gap_ms') IS NOT NULL) AS gaps "
        "FROM calls, json_each(calls.timeline) AS turn WHERE calls.ended_at IS NOT NULL GROUP BY calls.id) AS figures "
        "WHERE figures.call_id = calls.id"
    )
    op.create_table(
        "statistics_scopes",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("organization_id", sa.String(length=36), nullable=False),
        sa.Column("agent_id", sa.String(length=36), nullable=False),
        sa.Column("phone_number_id", sa.String(length=36), nullable=False),
        sa.Column("direction", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name="fk_statistics_scopes_organization_id_organizations",
            ondelete="CASCADE",
        ),
    )
    op.create_index(
        "ix_statistics_scopes_key",
        "statistics_scopes",
        ["organization_id", "agent_id", "phone_number_id", "direction"],
        unique=True,
    )
    op.create_table(
        "statistics",
        sa.Column("scope_id", sa.Integer(), nullable=False),
        sa.Column("quarter", sa.Integer(), nullable=False),
        sa.Column("figure", sa.String(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["scope_id"],
            ["statistics_scopes.id"],
            name="fk_statistics_scope_id_statistics_scopes",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("scope_id", "quarter", "figure", name="pk_statistics"),
        sqlite_with_rowid=False,
    )
    _count_existing()
    counted = "{row}.ended_at IS NOT NULL AND NOT {row}.test"
    of_new, of_old, add = counted.format(row="new"), counted.format(row="old"), _add("new")
    op.execute(f"CREATE TRIGGER statistics_inserted AFTER INSERT ON calls WHEN {of_new} BEGIN {add} END")
    op.execute(
        "CREATE TRIGGER statistics_ended AFTER UPDATE OF ended_at ON calls "
        f"WHEN old.ended_at IS NULL AND {of_new} BEGIN {add} END"
    )
    op.execute(f"CREATE TRIGGER statistics_removed AFTER DELETE ON calls WHEN {of_old} BEGIN {_remove()} END")


def _figures(row: str) -> str:
    """SELECT of the figures of a call and their amounts."""
    plain = (
        f"SELECT {_name(name, row)} AS figure, {amount.format(row=row)} AS amount" for name, amount in SUMS.items()
    )
    gaps = (
        f"SELECT 'gap.' || ({GAP_BIN.format(ms='gap.value')}), count(*) FROM json_each({row}.response_gaps) AS gap "
        "GROUP BY 1"
    )
    return " UNION ALL ".join((*plain, gaps))


def _name(name: str, row: str) -> str:
    kind, dot, column = name.partition(".")
    return f"'{kind}.' || {column.format(row=row)}" if dot else f"'{name}'"


def _keys(row: str) -> str:
    return ", ".join(f"({agent.format(row=row)}, {number.format(row=row)})" for agent, number in SCOPES)


def _of_call(row: str) -> str:
    """Condition of the scopes of a call."""
    return (
        f"organization_id = {row}.organization_id AND direction = {row}.direction "
        f"AND (agent_id, phone_number_id) IN (VALUES {_keys(row)})"
    )


def _add(row: str) -> str:
    """Statements that add a call to its sums."""
    scopes = "".join(
        "INSERT OR IGNORE INTO statistics_scopes(organization_id, agent_id, phone_number_id, direction) "
        f"VALUES ({row}.organization_id, {agent.format(row=row)}, {number.format(row=row)}, {row}.direction); "
        for agent, number in SCOPES
    )
    return (
        f"{scopes}INSERT INTO statistics(scope_id, quarter, figure, amount) "
        f"SELECT statistics_scopes.id, {row}.created_at / {QUARTER_MS}, figures.figure, figures.amount "
        f"FROM statistics_scopes CROSS JOIN ({_figures(row)}) AS figures "
        f"WHERE {_of_call(row)} AND figures.amount != 0 AND figures.figure IS NOT NULL "
        "ON CONFLICT (scope_id, quarter, figure) DO UPDATE SET amount = amount + excluded.amount;"
    )


def _remove() -> str:
    """Statements that subtract a call from its sums."""
    place = (
        f"scope_id IN (SELECT id FROM statistics_scopes WHERE {_of_call('old')}) "
        f"AND quarter = old.created_at / {QUARTER_MS}"
    )
    return (
        f"UPDATE statistics SET amount = statistics.amount - figures.amount FROM ({_figures('old')}) AS figures "
        f"WHERE statistics.figure = figures.figure AND {place}; "
        f"DELETE FROM statistics WHERE {place} AND amount = 0;"
    )


def _count_existing() -> None:
    """Count the calls that have ended."""
    which = "calls.ended_at IS NOT NULL AND NOT calls.test"
    for agent, number in SCOPES:
        key = f"{agent.format(row='calls')}, {number.format(row='calls')}"
        op.execute(
            "INSERT INTO statistics_scopes(organization_id, agent_id, phone_number_id, direction) "
            f"SELECT DISTINCT calls.organization_id, {key}, calls.direction FROM calls WHERE {which}"
        )
        joined = (
            "JOIN statistics_scopes AS scope ON scope.organization_id = calls.organization_id "
            f"AND scope.direction = calls.direction AND (scope.agent_id, scope.phone_number_id) = ({key})"
        )
        quarter = f"calls.created_at / {QUARTER_MS}"
        for name, amount in SUMS.items():
            figure, summed = _name(name, "calls"), f"sum({amount.format(row='calls')})"
            op.execute(
                f"INSERT INTO statistics SELECT scope.id, {quarter}, {figure}, {summed} FROM calls {joined} "
                f"WHERE {which} AND {figure} IS NOT NULL GROUP BY 1, 2, 3 HAVING {summed} != 0"
            )
        gap_bin = f"'gap.' || ({GAP_BIN.format(ms='gap.value')})"
        op.execute(
            f"INSERT INTO statistics SELECT scope.id, {quarter}, {gap_bin}, count(*) "
            f"FROM calls {joined}, json_each(calls.response_gaps) AS gap WHERE {which} GROUP BY 1, 2, 3"
        )
