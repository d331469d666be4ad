"""A call with everything that a call's page shows, in texts that a browser must not take for HTML."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final

import numpy as np
import sqlalchemy as sa

from calls.call_record.timeline import CitedPassage, TimelineTurn, ToolTiming
from config.clock import iso, utc_now
from media.recording import wav_header
from storage import tables
from storage.calls import calls, recordings, sip_traces
from storage.calls.calls import Call, TranscriptItem
from storage.calls.sip_traces import SipTrace, StoredSipMessage
from storage.webhooks import deliveries
from tests.api.conftest import Api

HOSTILE: Final = "<img src=x onerror=\"document.title='broken out'\">{{7*7}}"
SECONDS: Final = 12
RATE: Final = 8000


async def store_call(api: Api, agent_id: str | None, **changes: Any) -> Call:
    """Stores a call of two turns and its recording. `changes` are columns with other values."""
    call = await api.services.database.write(lambda conn: _store(conn, api.organization_id, agent_id, changes))
    path = recordings.path_of(api.services.settings.data_dir, call.id, call.created_at)
    await asyncio.to_thread(path.parent.mkdir, parents=True, exist_ok=True)
    await asyncio.to_thread(path.write_bytes, _recording())
    return call


def _recording() -> bytes:
    times = np.arange(SECONDS * RATE) / RATE
    tone = 12000 * np.sin(2 * np.pi * 300 * times)
    caller = tone * ((times >= 1) & (times < 3) | (times >= 7) & (times < 8))
    agent = tone * ((times >= 4) & (times < 6) | (times >= 9) & (times < 11))
    sides = np.stack([caller, agent], axis=1).astype("<i2")
    return wav_header(RATE, SECONDS * RATE) + sides.tobytes()


def _store(conn: sa.Connection, owner: str, agent_id: str | None, changes: dict[str, Any]) -> Call:
    began = utc_now() - timedelta(hours=1)
    call = calls.create_inbound(
        conn,
        organization_id=owner,
        agent_id=agent_id or "",
        phone_number_id="",
        provider="sip",
        call_sid="x",
        customer_number="+4940654321",
        context_variables={"name": HOSTILE},
        metadata={"ticket": HOSTILE},
    )
    conn.execute(sa.update(tables.calls).where(tables.calls.c.id == call.id).values(created_at=began))
    calls.finish(
        conn,
        call.id,
        status="completed",
        ended_reason="customer_ended",
        ended_at=began + timedelta(seconds=SECONDS),
        answered_at=began,
        transcript=transcript(),
        timeline=[each.to_json(0.0) for each in _turns()],
        analysis={"summary": HOSTILE, "extractions": {"fee": HOSTILE}},
        recording=True,
        turn_count=2,
    )
    if changes:
        conn.execute(sa.update(tables.calls).where(tables.calls.c.id == call.id).values(**changes))
    sip_traces.store(conn, {call.id: SipTrace([invite()])})
    event = deliveries.add(
        conn, organization_id=owner, call_id=call.id, url="https://receiver.test/", body=b"{}", secret_encrypted=None
    )
    (due,) = [each for each in deliveries.due_attempts(conn, utc_now()) if each.delivery.id == event.id]
    deliveries.record_attempt(
        conn,
        due.attempt,
        succeeded=True,
        response_status=200,
        response_body=HOSTILE,
        error=None,
        duration_ms=31,
        started_at=utc_now(),
    )
    stored = calls.get_by_id(conn, call.id)
    assert stored is not None
    return stored


def transcript() -> list[TranscriptItem]:
    """What is said in the stored call, for which the recording has tones."""
    return [
        {"role": "user", "content": f"Is [card] valid? {HOSTILE}", "startMs": 1000, "endMs": 3000},
        {"role": "assistant", "content": "It is valid.", "startMs": 4000, "endMs": 6000},
        {"role": "user", "content": "Thank you", "startMs": 7000, "endMs": 8000},
        {"role": "assistant", "content": "Goodbye then.", "startMs": 9000, "endMs": 11000, "words": [0, 1000]},
    ]


def _turns() -> list[TimelineTurn]:
    first = TimelineTurn(
        1,
        ended_by="model",
        eot_probability=0.97,
        speech_start_ms=1000.0,
        speech_end_ms=3000.0,
        turn_end_ms=3300.0,
        text_ready_ms=3200.0,
        agent_start_ms=4000.0,
        interrupted_ms=5900.0,
        agent_end_ms=6000.0,
        tools=[ToolTiming(HOSTILE, 3100.0, 3400.0, True, {"question": HOSTILE}, HOSTILE)],
        sources=[CitedPassage("8f0c4f6e-2f1d-4d0a-9a57-3c1b6e0d7a21", HOSTILE, 1, 0.5)],
    )
    second = TimelineTurn(
        2,
        ended_by="delay",
        speech_start_ms=7000.0,
        speech_end_ms=8000.0,
        turn_end_ms=8400.0,
        text_ready_ms=8300.0,
        agent_start_ms=9000.0,
        agent_end_ms=11000.0,
    )
    return [first, second]


def invite() -> StoredSipMessage:
    """An INVITE of the caller."""
    text = f"INVITE sip:100@192.0.2.1 SIP/2.0\r\nFrom: {HOSTILE} <sip:a@192.0.2.2>\r\n\r\n"
    return StoredSipMessage(
        at=iso(utc_now()),
        offset_ms=0,
        direction="received",
        transport="udp",
        source="192.0.2.2:5060",
        target="192.0.2.1:5060",
        summary="INVITE sip:100@192.0.2.1",
        cseq=1,
        sdp=False,
        again=False,
        text=text,
    )
