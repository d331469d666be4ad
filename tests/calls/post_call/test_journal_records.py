"""Records of the call journal: what is read is what was written."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from calls.call_record.metering import CallUsage
from calls.call_record.outcome import CallOutcome
from calls.post_call.journal_records import CallRecord, JournaledTransferEnd
from config.clock import utc_now, whole_ms
from storage.accounts import organizations
from storage.calls import calls, transfers
from storage.calls.calls import Call
from storage.calls.transfers import Transfer, TransferState
from tests import database_template
from tests.storage.calls.transfer_makers import parent_call, transfer_of

NOW = whole_ms(utc_now())


def a_call() -> Call:
    call = calls.new_inbound(
        organization_id="o",
        agent_id="a",
        agent_version=3,
        phone_number_id="n",
        provider="sip",
        call_sid="sid",
        customer_number="+1",
        metadata={"order": 7},
    )
    return Call(**{**call.__dict__, "created_at": NOW, "updated_at": NOW})


def test_a_record_is_read_as_it_was_written() -> None:
    transfer = JournaledTransferEnd(
        "t", {"status": "failed", "ended_at": NOW, "states": [TransferState(status="failed", at="2026")]}
    )
    end = CallOutcome(
        status="completed",
        reason="transferred",
        ended_at=NOW + timedelta(seconds=9),
        answered_at=NOW,
        transcript=[{"role": "user", "content": "Grüße \ud800", "words": [0]}],
        timeline=[{"turn": 1}],
        turn_count=1,
        recorded=True,
        media_quality={"loss": 0.1},
        sip_end={"statusCode": 200},
        usage=CallUsage(1.5, 2, 3, 4.25, 5),
        transfer_ends=[transfer],
        child_call_ids=["t"],
    )
    for record in (
        CallRecord(a_call(), row=True, start_at=NOW, end=end),
        CallRecord(None, row=False, start_at=None, end=end),
        CallRecord(a_call(), row=True, start_at=NOW, end=None),
    ):
        assert CallRecord.from_json(json.loads(json.dumps(record.to_json()))) == record


async def test_the_end_of_a_transfer_is_written_once(tmp_path: Path) -> None:
    def store(conn: sa.Connection) -> Transfer:
        call = parent_call(conn, organizations.create(conn, "o").id)
        transfer = transfer_of(call, status="ringing")
        transfers.insert(conn, transfer)
        return transfer

    database = await database_template.open_copy(tmp_path)
    try:
        transfer = await database.write(store)
        end = JournaledTransferEnd(transfer.id, {"status": "busy", "ended_at": NOW, "sip_status": 486})
        for _ in range(2):
            await database.write(end.write)
            found = await database.read(partial(transfers.get, transfer_id=transfer.id))
            assert found is not None
            assert (found.status, found.sip_status, found.ended_at) == ("busy", 486, NOW)
    finally:
        await database.close()
