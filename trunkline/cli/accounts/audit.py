"""`trunkline audit`: prints the audit log: requests for outbound calls, and who changed what."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from config.clock import iso
from storage.accounts import audit_log, organizations
from storage.accounts.audit_log import AuditEntry
from storage.calls import outbound_audit
from trunkline.cli.framework.argument_types import INSTANT
from trunkline.cli.framework.commands import Command, json_option
from trunkline.cli.terminal.streams import discard_stdout
from trunkline.organization_admin import open_database, organization_by_name

if TYPE_CHECKING:
    from config.settings import Settings
    from storage.accounts.organizations import Organization
    from storage.calls.outbound_audit import AttemptWithCall
    from storage.database.database import Database

PAGE_ROWS: Final = 1000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@click.command(cls=Command, examples=("trunkline audit --org acme", "trunkline audit --since 2026-11-21T05:00 --json"))
@click.option("--org", metavar="NAME", help="only of this organization")
@click.option("--since", type=INSTANT, help="only entries from this time on, such as 2026-11-21T05:00 (UTC)")
@json_option
async def audit(settings: Settings, org: str | None, since: datetime | None, as_json: bool) -> int:
    """Show every request for an outbound call with its outcome, every change with who made it, and sign-ins.

    One line for each, oldest first: those of the whole installation, then of one organization after the other.
    """
    async with open_database(settings) as database:
        selected: list[Organization | None]
        if org is None:
            selected = [None, *await database.read(organizations.all_of)]
        else:
            selected = [await database.read(lambda conn: organization_by_name(conn, org))]
        try:
            for organization in selected:
                await _print_entries(database, organization, since or EPOCH, _json if as_json else _line)
            sys.stdout.flush()
        except BrokenPipeError:  # from `| head`
            discard_stdout()
    return 0


async def _print_entries(
    database: Database,
    organization: Organization | None,
    since: datetime,
    to_text: Callable[[AttemptWithCall | AuditEntry, str | None], str],
) -> None:
    """Print the outbound requests and the changes of an organization, or of the whole installation, merged by time."""
    name = None if organization is None else organization.name
    changes = _changes(database, None if organization is None else organization.id, since)
    change = await anext(changes, None)
    if organization is not None:
        async for request in _requests(database, organization.id, since):
            while change is not None and change.created_at <= request.attempt.created_at:
                print(to_text(change, name))
                change = await anext(changes, None)
            print(to_text(request, name))
    while change is not None:
        print(to_text(change, name))
        change = await anext(changes, None)


async def _requests(database: Database, organization_id: str, since: datetime) -> AsyncIterator[AttemptWithCall]:
    """Yields the requests for outbound calls, oldest first."""
    last_id = ""
    while page := await database.read(
        partial(
            outbound_audit.page_after, organization_id=organization_id, since=since, last_id=last_id, limit=PAGE_ROWS
        )
    ):
        for each in page:
            yield each
        since, last_id = page[-1].attempt.created_at, page[-1].attempt.id


async def _changes(database: Database, organization_id: str | None, since: datetime) -> AsyncIterator[AuditEntry]:
    """Yields the other entries, oldest first."""
    last_id = ""
    while page := await database.read(
        partial(audit_log.entries_since, organization_id=organization_id, at=since, last_id=last_id, limit=PAGE_ROWS)
    ):
        for each in page:
            yield each
        since, last_id = page[-1].created_at, page[-1].id


def _line(record: AttemptWithCall | AuditEntry, organization: str | None) -> str:
    if isinstance(record, AuditEntry):
        entry_words = [
            iso(record.created_at),
            f"{record.action:16}",
            organization or "-",
            record.actor or "-",
            record.client,
            record.object_name or record.object_id,
            ", ".join(record.fields) or None,
            record.detail,
        ]
        return "  ".join(word for word in entry_words if word is not None)
    attempt = record.attempt
    words = [
        iso(attempt.created_at),
        f"{attempt.verdict:16}",
        organization or "-",
        attempt.api_key_prefix or "-",
        attempt.client or "-",
        f"{attempt.number or attempt.phone_number_id or '-'} -> {attempt.destination}",
        None if record.call_status is None else f"{attempt.call_id} {record.call_status}",
        attempt.detail,
    ]
    return "  ".join(word for word in words if word is not None)


def _json(record: AttemptWithCall | AuditEntry, organization: str | None) -> str:
    if isinstance(record, AuditEntry):
        entry = {
            "at": iso(record.created_at),
            "actor": record.actor,
            "actorType": record.actor_type,
            "actorId": record.actor_id,
            "action": record.action,
            "organization": organization,
            "callId": record.call_id,
            "objectType": record.object_type,
            "objectId": record.object_id,
            "objectName": record.object_name,
            "fields": record.fields,
            "client": record.client,
            "detail": record.detail or record.object_name,
        }
        return json.dumps(entry)
    attempt = record.attempt
    fields: dict[str, Any] = {
        "at": iso(attempt.created_at),
        "verdict": attempt.verdict,
        "organization": organization,
        "apiKeyId": attempt.api_key_id,
        "apiKey": attempt.api_key_prefix,
        "client": attempt.client,
        "phoneNumberId": attempt.phone_number_id,
        "number": attempt.number,
        "destination": attempt.destination,
        "callId": attempt.call_id,
        "ended": record.call_status,
        "detail": attempt.detail,
    }
    return json.dumps(fields)
