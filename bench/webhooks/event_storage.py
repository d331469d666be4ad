"""Time of the transaction that stores an inbound call with its `call.started`, on which the INVITE waits, by the number
of endpoints that get the event: `python -m bench.webhooks.event_storage`."""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from calls.webhooks import call_events
from config import logging as logs
from storage.accounts import organizations
from storage.calls import calls
from storage.database.database import Database
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumberFields
from storage.tables.webhooks import WebhookEndpointFields
from storage.webhooks import endpoints

ENDPOINTS: Final = (0, 1, 20, 100, 1000)
CALLS: Final = 200
METADATA: Final = {"order": "x" * 2000}
Row = dict[str, Any]


def _insert_seed_data(endpoint_count: int, conn: sa.Connection) -> tuple[str, str]:
    organization = organizations.create(conn, f"with {endpoint_count}")
    for number in range(endpoint_count):
        fields = WebhookEndpointFields(url=f"https://{number}.test/hook", events=["call.started"])
        endpoints.create(conn, organization.id, fields)
    line = PhoneNumberFields(number=str(endpoint_count), provider="sip")
    return organization.id, phone_numbers.create(conn, organization.id, line).id


def _store_call(organization_id: str, number_id: str, conn: sa.Connection) -> int:
    """Returns the number of statements for the event."""
    call = calls.create_inbound(
        conn, organization_id=organization_id, agent_id=organization_id, phone_number_id=number_id, provider="sip",
        call_sid="bench", customer_number="1", metadata=METADATA,
    )  # fmt: skip
    statements: list[str] = []

    def count(*arguments: Any) -> None:
        statements.append(arguments[2])

    sa.event.listen(conn, "before_cursor_execute", count)
    call_events.add_started(conn, call, None, call.created_at)
    sa.event.remove(conn, "before_cursor_execute", count)
    return len(statements)


async def run() -> list[Row]:
    """Stores `CALLS` calls for each number of endpoints."""
    logs.configure("error", "console")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite+aiosqlite:///{Path(folder, 'bench.db')}")
        await database.open()
        for endpoint_count in ENDPOINTS:
            store = partial(_store_call, *await database.write(partial(_insert_seed_data, endpoint_count)))
            await database.write(store)
            took_ms = []
            for _ in range(CALLS):
                begun_s = time.perf_counter()
                statements = await database.write(store)
                took_ms.append(1000 * (time.perf_counter() - begun_s))
            took_ms.sort()
            rows.append(
                {
                    "endpoints": endpoint_count,
                    "statements": statements,
                    "p50_ms": round(took_ms[CALLS // 2], 1),
                    "p95_ms": round(took_ms[CALLS * 95 // 100], 1),
                    "max_ms": round(took_ms[-1], 1),
                }
            )
        await database.close()
    return rows


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    for row in asyncio.run(run()):
        print(json.dumps(row))
