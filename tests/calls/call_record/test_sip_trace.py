"""SIP traces of ended calls: stored in batches shortly after their ends, without effect on anything else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest
import pytest_asyncio
import sqlalchemy as sa
from structlog.testing import capture_logs

from calls.call_record import sip_trace
from calls.call_record.sip_trace import CallSipTraces, TracedCall
from sipcore.dialogs.leg import InviteFacts
from sipcore.messages.headers import NameAddr
from sipcore.trace.sip_capture import DialogKey, SipCapture
from sipcore.trace.sip_message import SipMessage
from storage.accounts import organizations
from storage.calls import calls, sip_traces
from storage.calls.sip_traces import SipTrace
from storage.database.errors import StorageUnavailable
from tests import database_template
from tests.calls.call_service_harness import WatchedDatabase

NOBODY = NameAddr("", "")


@pytest_asyncio.fixture
async def database(tmp_path: Path) -> AsyncIterator[WatchedDatabase]:
    database = WatchedDatabase(await database_template.copy_to(tmp_path))
    await database.open()
    yield database
    await database.close()


async def stored_call(database: WatchedDatabase) -> str:
    def create(conn: sa.Connection) -> str:
        found = organizations.all_of(conn)
        owner = found[0] if found else organizations.create(conn, "office")
        return calls.create_inbound(
            conn, organization_id=owner.id, agent_id=owner.id, phone_number_id=owner.id, provider="sip", call_sid="x",
            customer_number="100",
        ).id  # fmt: skip

    return await database.write(create)


def message(method: str, call_id: str, status: int = 0, *, tag: str = "a") -> SipMessage:
    line = f"SIP/2.0 {status} OK" if status else f"{method} sip:100@host SIP/2.0"
    return SipMessage(0, bool(status), "udp", "us:5060", "peer:5060", call_id, tag, "b", method, 1, status, False,
                      line.encode())  # fmt: skip


def facts(call_id: str, direction: Literal["inbound", "outbound"] = "inbound", tag: str = "a") -> InviteFacts:
    return InviteFacts(call_id, direction, "", "", NOBODY, NOBODY, from_tag=tag if direction == "inbound" else "")


def stored(call_id: str) -> Any:
    return lambda conn: sip_traces.get(conn, call_id)


async def test_calls_that_end_together_are_stored_in_one_transaction(
    database: WatchedDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sip_trace, "STORE_DELAY_S", 0.05)
    capture = SipCapture()
    traces = CallSipTraces(database, capture, lambda: None)
    ids = [await stored_call(database) for _ in range(3)]
    for number, call_id in enumerate(ids):
        capture.add([message("INVITE", f"c{number}")], 0)
        traces.start(TracedCall(call_id, None), facts(f"c{number}"))
        traces.on_call_ended(call_id)
    capture.add([message("BYE", "c2", 200)], 0)
    writes = database._writes
    found = await database.until(stored(ids[2]), lambda sip: sip is not None)
    assert database._writes == writes + 1
    assert [each["summary"] for each in found.messages] == ["INVITE sip:100@host", "200 OK (BYE)"]
    await asyncio.sleep(0)
    assert not any(capture.find_dialogs(f"c{number}", "callee") for number in range(3)), "memory is freed"
    assert await traces.messages(ids[0]) is None


async def test_close_stores_the_messages_of_ended_calls(database: WatchedDatabase) -> None:
    capture = SipCapture()
    traces = CallSipTraces(database, capture, lambda: capture.add([message("BYE", "c1", 200)], 0))
    call_id = await stored_call(database)
    capture.add([message("INVITE", "c1")], 0)
    traces.start(TracedCall(call_id, None), facts("c1"))
    traces.on_call_ended(call_id)
    await traces.close()
    sip = await database.read(stored(call_id))
    assert isinstance(sip, SipTrace) and len(sip.messages) == 2


async def test_a_failing_database_loses_the_messages_alone(
    database: WatchedDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = SipCapture()
    traces = CallSipTraces(database, capture, lambda: None)
    call_id = await stored_call(database)
    capture.add([message("INVITE", "c1")], 0)
    traces.start(TracedCall(call_id, None), facts("c1"))

    def full(*_: object) -> None:
        raise StorageUnavailable("the disk is full")

    monkeypatch.setattr(sip_traces, "store", full)
    with capture_logs() as events:
        traces.on_call_ended(call_id)
        await traces.close()
    event = {"event": "calls.sip_not_stored", "calls": 1, "cause": "the disk is full", "log_level": "warning"}
    assert events == [{**event, "lost": [call_id]}]
    assert not capture.find_dialogs("c1", "callee")


async def test_both_legs_of_a_call_to_this_server_have_their_own_messages(database: WatchedDatabase) -> None:
    capture = SipCapture()
    traces = CallSipTraces(database, capture, lambda: None)
    out, back = TracedCall("out", "n1"), TracedCall("back", "n2")
    capture.add([message("INVITE", "c1")._replace(sent=True), message("INVITE", "c1")], 0)
    traces.start(out, facts("c1", "outbound"))
    traces.start(back, facts("c1"))
    assert traces.call_of(DialogKey("c1", "caller", "a")) == out
    assert traces.call_of(DialogKey("c1", "callee", "a")) == back
    assert traces.call_of(DialogKey("c1", "callee", "z")) is None
    assert [
        sip.messages[0]["direction"] for each in (out, back) if (sip := await traces.messages(each.call_id)) is not None
    ] == ["sent", "received"]


async def test_an_invite_to_another_target_is_in_the_trace_of_the_same_call(database: WatchedDatabase) -> None:
    capture = SipCapture()
    traces = CallSipTraces(database, capture, lambda: None)
    call_id = await stored_call(database)
    traces.start(TracedCall(call_id, "n1"), facts("c1", "outbound"))
    first, second = (message("INVITE", "c1", tag=tag)._replace(sent=True) for tag in ("a", "z"))
    redirect = message("INVITE", "c1", 302)._replace(sent=False)
    capture.add([first._replace(at_ns=1), redirect._replace(at_ns=2), second._replace(at_ns=4)], 0)
    capture.add([message("ACK", "c1")._replace(sent=True, at_ns=3)], 0)
    live = await traces.messages(call_id)
    traces.on_call_ended(call_id)
    await traces.close()
    kept = await database.read(stored(call_id))
    assert live is not None and [each["cseq"] for each in live.messages] == [1] * 4
    assert [each["summary"].split()[0] for each in live.messages] == ["INVITE", "302", "ACK", "INVITE"]
    assert kept == live
    assert not capture.find_dialogs("c1", "caller")
