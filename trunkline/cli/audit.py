"""`trunkline audit`: the log of every outbound call that was wanted, and of what operators changed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from config.clock import iso
from config.settings import Settings
from storage.accounts import audit_log, organizations
from storage.accounts.audit_log import AuditEntry
from storage.accounts.organizations import Organization
from storage.calls import outbound_audit
from storage.calls.outbound_audit import AttemptWithCall
from storage.database.database import Database
from trunkline.admin import open_database, organization_named

PIECE: Final = 1000
"""Rows that are read at once."""
BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


async def audit(settings: Settings, organization_name: str | None, since: datetime | None, *, as_json: bool) -> int:
    """Print the log, one organization after the other, oldest first; of one organization or of all. Raises `NotFound`
    for an unknown one."""
    async with open_database(settings) as database:
        if organization_name is None:
            wanted = await database.read(organizations.all_of)
        else:
            wanted = [await database.read(lambda conn: organization_named(conn, organization_name))]
        try:
            for each in wanted:
                await _print_all(database, each, since or BEGINNING, _json if as_json else _line)
            sys.stdout.flush()
        except BrokenPipeError:  # `| head` has seen enough; what is still in the buffer must not complain at the exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


async def _print_all(
    database: Database,
    organization: Organization,
    since: datetime,
    words_of: Callable[[AttemptWithCall | AuditEntry, str], str],
) -> None:
    entries = await database.read(partial(audit_log.since, organization_id=organization.id, at=since))
    last_id = ""
    while piece := await database.read(
        partial(outbound_audit.page_after, organization_id=organization.id, since=since, last_id=last_id, limit=PIECE)
    ):
        for record in piece:
            while entries and entries[0].created_at <= record.attempt.created_at:
                print(words_of(entries.pop(0), organization.name))
            print(words_of(record, organization.name))
        since, last_id = piece[-1].attempt.created_at, piece[-1].attempt.id
    for entry in entries:
        print(words_of(entry, organization.name))


def _line(record: AttemptWithCall | AuditEntry, organization: str) -> str:
    if isinstance(record, AuditEntry):
        done = [
            iso(record.created_at),
            f"{record.action:16}",
            organization,
            record.actor,
            record.call_id,
            record.detail,
        ]
        return "  ".join(word for word in done if word is not None)
    attempt = record.attempt
    words = [
        iso(attempt.created_at),
        f"{attempt.verdict:16}",
        organization,
        attempt.api_key_prefix or "-",
        attempt.client or "-",
        f"{attempt.number or attempt.phone_number_id or '-'} -> {attempt.destination}",
        None if record.call_status is None else f"{attempt.call_id} {record.call_status}",
        attempt.detail,
    ]
    return "  ".join(word for word in words if word is not None)


def _json(record: AttemptWithCall | AuditEntry, organization: str) -> str:
    if isinstance(record, AuditEntry):
        entry = {
            "at": iso(record.created_at),
            "actor": record.actor,
            "action": record.action,
            "organization": organization,
            "callId": record.call_id,
            "detail": record.detail,
        }
        return json.dumps(entry)
    attempt = record.attempt
    shown: dict[str, Any] = {
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
    return json.dumps(shown)
