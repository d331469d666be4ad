"""`trunkline database`: copies the database to another file or server."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from trunkline.cli.framework.commands import Group, json_option
from trunkline.cli.terminal.progress import progress
from trunkline.cli.terminal.table import print_json, print_table

if TYPE_CHECKING:
    from config.settings import Settings
    from storage.row_copy.contents import Comparison, Contents
    from storage.row_copy.row_copy import CopySummary

_COLUMNS: Final = {"table": "TABLE", "rows": "ROWS", "sha256": "SHA-256", "state": "STATE"}
_EXAMPLE: Final = "trunkline database copy --to postgresql+psycopg://trunkline@db.example.com/trunkline"
MAX_LISTED: Final = 20
"""Replaced texts that are printed one by one."""


@click.group(cls=Group, examples=(_EXAMPLE,))
def database() -> None:
    """Copy the database to another file or server."""


@database.command("copy", examples=(_EXAMPLE, "trunkline database copy --to sqlite+aiosqlite:////srv/trunkline.db"))
@click.option(
    "--to", "target", metavar="URL", required=True,
    help="the empty database, as in [database] url; without a password in it, that of PGPASSWORD or of ~/.pgpass",
)  # fmt: skip
@json_option
def copy(settings: Settings, target: str, as_json: bool) -> int:
    """Copy all rows to an empty database, of SQLite or PostgreSQL, and compare both.

    No server may run on either. An interrupted copy goes on where it stopped. The database of the settings is not
    changed: set [database] url to the new one afterwards. The exit status is 1 if a table differs.
    """
    from storage.database import database_url
    from storage.row_copy.row_copy import copy_database

    source_url, target_url = database_url.parse(settings.database_url), database_url.parse(target, "option --to")
    started = time.monotonic()
    with progress("items") as display:
        summary = copy_database(source_url, target_url, display.show)
    seconds = time.monotonic() - started
    rows = [row for each in summary.comparisons for row in _rows(each)]
    if as_json:
        print_json(rows)
    else:
        print_table(_COLUMNS, [{name: str(value) for name, value in row.items()} for row in rows])
    for line in _notes(summary, seconds, database_url.shown(target_url)):
        print(line, file=sys.stderr)
    return 1 if summary.differs else 0


def _rows(found: Comparison) -> list[dict[str, Any]]:
    if not found.differs:
        return [_row(found.table, found.source, "equal")]
    return [_row(found.table, found.source, "differs: source"), _row(found.table, found.target, "differs: target")]


def _row(table: str, contents: Contents, state: str) -> dict[str, Any]:
    return {"table": table, "rows": contents.rows, "sha256": contents.sha256, "state": state}


def _notes(summary: CopySummary, seconds: float, target: str) -> list[str]:
    lines = [
        f"{each.table}.{each.column} of the row {', '.join(map(str, each.key))}: U+0000 became U+FFFD"
        for each in summary.replaced[:MAX_LISTED]
    ]
    if len(summary.replaced) > MAX_LISTED:
        lines.append(f"U+0000 became U+FFFD in {len(summary.replaced) - MAX_LISTED} further texts")
    wrong = [each.table for each in summary.comparisons if each.differs]
    if wrong:
        return [*lines, f"trunkline: {target} differs in {', '.join(wrong)}, and stays unusable: empty it, copy again"]
    begun = ", the rest of an interrupted copy," if summary.resumed else ""
    lines.append(f"copied {summary.copied_rows} rows{begun} and compared all in {seconds:.1f} s")
    return [*lines, f"to use {target}, set [database] url; the files in data_dir are not in the database"]
