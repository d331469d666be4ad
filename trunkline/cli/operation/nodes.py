"""`trunkline nodes`: the servers that use the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from config.clock import iso
from trunkline.cli.framework.commands import Command, json_option
from trunkline.cli.terminal.table import print_json, print_table

if TYPE_CHECKING:
    import sqlalchemy as sa

    from config.settings import Settings
    from storage.nodes.nodes import Node

_COLUMNS: Final = {
    "name": "NAME", "state": "STATE", "calls": "CALLS", "capacity": "CAPACITY", "leases": "LEASES", "url": "URL",
    "version": "VERSION", "lastSeenAt": "LAST SEEN",
}  # fmt: skip


@click.command(cls=Command, examples=("trunkline nodes", "trunkline nodes --json"))
@json_option
async def nodes(settings: Settings, as_json: bool) -> int:
    """List the servers that use the PostgreSQL database, with their calls, and the leases of what they do for all.

    A server with a SQLite database is the only one, and is not listed.
    """
    from trunkline.organization_admin import open_database

    async with open_database(settings) as database:
        rows = await database.read(_rows)
    if as_json:
        print_json(rows)
        return 0
    print_table(_COLUMNS, [{key: "-" if value is None else str(value) for key, value in row.items()} for row in rows])
    return 0


def _rows(conn: sa.Connection) -> list[dict[str, Any]]:
    from storage.nodes import leases
    from storage.nodes import nodes as stored

    counts = leases.counts(conn)
    return [_row(each, counts.get(each.instance, 0)) for each in stored.all_of(conn)]


def _row(node: Node, leases: int) -> dict[str, Any]:
    return {
        "name": node.name,
        "url": node.url,
        "version": node.version,
        "state": node.state,
        "calls": node.calls,
        "capacity": node.capacity,
        "lastSeenAt": iso(node.last_seen_at),
        "leases": leases,
    }
