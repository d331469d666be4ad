"""Limits that all nodes of a PostgreSQL database share, by its clock: fixed windows, of which each node draws permits
in advance, and the spacing of outbound calls. Each is one statement on one row, so that nodes never exceed a limit
together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from storage.database.postgresql.locks import IndependentLock

PACE_LOCK: Final = IndependentLock("outbound pace")
MAX_AHEAD: Final = 1000
"""How many starts the pace may be ahead of the clock at most, in case that is set back."""
KEPT_S: Final = 600
"""How long a window stays after its beginning, seconds."""
_NOW: Final = "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint"
_DRAW: Final = sa.text(f"""
INSERT INTO shared_limits AS w (name, at_us, used, drawn)
VALUES (:name, {_NOW}, least(:limit, greatest(1, :limit / :parts)), least(:limit, greatest(1, :limit / :parts)))
ON CONFLICT (name) DO UPDATE SET (at_us, used, drawn) = (
    SELECT CASE WHEN over THEN now ELSE w.at_us END, before + permits, permits FROM (
        SELECT now, over, before,
            least(greatest(:limit - before, 0), greatest(1, (:limit - before) / :parts)) AS permits
        FROM (
            SELECT now, over, CASE WHEN over THEN 0 ELSE w.used END AS before FROM (
                SELECT now, w.at_us NOT BETWEEN now - :window_us + 1 AND now + :window_us AS over FROM (
                    SELECT {_NOW} AS now
                ) AS clock
            ) AS state
        ) AS sums
    ) AS drawing
)
RETURNING drawn, used, at_us + :window_us - {_NOW}
""")
_RESERVE: Final = sa.text(f"""
INSERT INTO shared_limits AS w (name, at_us, used, drawn) VALUES ('outbound pace', {_NOW} + :gap_us, 0, 0)
ON CONFLICT (name) DO UPDATE
SET at_us = greatest({_NOW}, least(w.at_us, {_NOW} + :gap_us * {MAX_AHEAD})) + :gap_us
RETURNING at_us - :gap_us - {_NOW}
""")
_DELETE_OLD: Final = sa.text(
    "DELETE FROM shared_limits WHERE name IN (SELECT name FROM shared_limits WHERE name <> 'outbound pace' "
    f"AND at_us < {_NOW} - {KEPT_S * 1_000_000} LIMIT 1000 FOR UPDATE SKIP LOCKED)"
)


@dataclass(frozen=True)
class Drawn:
    """Permits that a node has drawn. `left`: what is left of the window for all nodes; `ends_in_s`: when it ends, from
    the beginning of the transaction."""

    permits: int
    left: int
    ends_in_s: float


def draw(conn: sa.Connection, name: str, limit: int, *, window_s: float, parts: int) -> Drawn:
    """Draw permits of the window of this name, which begins with the first draw: one of `parts` of what is left, at
    least one, or 0 when nothing is left."""
    values = {"name": name, "limit": limit, "parts": parts, "window_us": round(window_s * 1_000_000)}
    permits, used, ends_in_us = conn.execute(_DRAW, values).one()
    return Drawn(permits, max(0, limit - used), ends_in_us / 1_000_000)


def reserve_start(conn: sa.Connection, per_second: float) -> float:
    """Reserve the next start of an outbound call, `1 / per_second` after the one before it; returns the seconds until
    it, 0 at least."""
    wait_us: int = conn.execute(_RESERVE, {"gap_us": round(1_000_000 / per_second)}).scalar_one()
    return max(0, wait_us) / 1_000_000


def delete_old(conn: sa.Connection) -> int:
    """Delete windows that have ended long ago, at most 1000; returns their number."""
    return conn.execute(_DELETE_OLD).rowcount
