"""A call of the sample organization: speech of both sides, turns, tools, SIP messages and webhooks."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import sqlalchemy as sa

from calls.call_record.media_quality import to_json
from calls.call_record.timeline import CitedPassage, ResponseTiming, TimelineTurn, ToolTiming
from config.clock import iso
from media.audio_port import Samples
from media.recording import wav_header
from sipcore.audio.call_quality import RtpTotals, call_quality
from storage import tables
from storage.calls import calls, recordings, sip_traces
from storage.calls.calls import Call, TranscriptItem
from storage.calls.sip_traces import SipTrace, StoredSipMessage
from storage.webhooks import deliveries
from tests.media.speech import speech
from tests.web.screenshots.sample_data import CALLER, NUMBER, SampleData

RATE: Final = 8000
PBX: Final = "192.0.2.10:5060"
SERVER: Final = "192.0.2.1:5060"
WEBHOOK: Final = "https://crm.example.com/calls"


@dataclass
class Line:
    """What one side says. `gap_ms`: the silence before it; negative: it interrupts the line before. `shown`: its text
    in the transcript, where it is another one."""

    agent: bool
    text: str
    gap_ms: int
    shown: str = ""
    probability: float | None = None
    tool: tuple[str, dict[str, Any], str, int] | None = None
    """Name, arguments, result and ms of the tool that the answer waited for."""
    source: str = ""
    """The document that the answer cites."""


CONVERSATION: Final = (
    Line(True, "Hello, this is Harbour Dental. How can I help you?", 600),
    Line(False, "I would like to move my appointment. The number is four two seven.", 700, probability=0.97),
    Line(
        True,
        "Your cleaning is on Monday at half past nine. Which day suits you better?",
        840,
        tool=("find_appointment", {"number": 427}, '{"service": "cleaning", "begins": "2026-03-16T09:30"}', 310),
    ),
    Line(False, "Do you have anything on Thursday afternoon?", 500, probability=0.93),
    Line(
        True,
        "On Thursday there is two o'clock, or a quarter to four, or if you prefer the evening,",
        910,
        tool=("free_times", {"day": "2026-03-19", "part": "afternoon"}, '["14:00", "15:45"]', 420),
    ),
    Line(False, "Two o'clock please.", -1200, probability=0.99),
    Line(
        True,
        "Done: your cleaning is on Thursday, the nineteenth of March, at two o'clock. Is there anything else?",
        720,
        tool=("move_appointment", {"number": 427, "begins": "2026-03-19T14:00"}, '{"moved": true}', 260),
    ),
    Line(False, "What do I need to bring?", 450, probability=0.98),
    Line(
        True,
        "Please bring your insurance card, and a list of the medicines that you take.",
        540,
        source="New patients.pdf",
    ),
    Line(
        False,
        "Fine. You can charge it to my card, one two three four.",
        620,
        shown="Fine. You can charge it to my card, [card].",
        probability=0.88,
    ),
    Line(True, "Thank you, you can pay by bank transfer after your visit. See you on Thursday!", 580),
    Line(False, "Thank you, goodbye.", 400, probability=0.99),
    Line(True, "Goodbye.", 510),
)


@dataclass
class Spoken:
    """The conversation as it was recorded: both sides, transcript and turns."""

    sides: tuple[list[tuple[int, Samples]], list[tuple[int, Samples]]] = field(default_factory=lambda: ([], []))
    transcript: list[TranscriptItem] = field(default_factory=list)
    turns: list[TimelineTurn] = field(default_factory=list)
    end_ms: int = 0

    def recording(self) -> bytes:
        """The WAV file: the caller on the left, the agent on the right."""
        stereo = np.zeros((self.end_ms * RATE // 1000 + RATE, 2), "<i2")
        for side, pieces in enumerate(self.sides):
            for at_ms, samples in pieces:
                begin = at_ms * RATE // 1000
                stereo[begin : begin + len(samples), side] = samples
        return wav_header(RATE, len(stereo)) + stereo.tobytes()


def spoken(lines: tuple[Line, ...] = CONVERSATION) -> Spoken:
    """The lines, one after the other."""
    found = Spoken()
    for line in lines:
        samples = speech(line.text, RATE, "slt" if line.agent else "rms")
        begin = found.end_ms + line.gap_ms
        end = begin + len(samples) * 1000 // RATE
        if line.gap_ms < 0:
            _interrupt(found, begin + 350)
        found.sides[line.agent].append((begin, samples))
        role = "assistant" if line.agent else "user"
        found.transcript.append({"role": role, "content": line.shown or line.text, "startMs": begin, "endMs": end})
        _count_turn(found, line, begin, end)
        found.end_ms = end
    return found


def _interrupt(found: Spoken, at_ms: int) -> None:
    """The agent falls silent."""
    turn, (begin, samples) = found.turns[-1], found.sides[1][-1]
    found.sides[1][-1] = begin, samples[: (at_ms - begin) * RATE // 1000]
    turn.interrupted_ms, turn.agent_end_ms = float(at_ms), float(at_ms)
    found.transcript[-1]["endMs"] = at_ms
    found.transcript[-1]["content"] += " …"


def _count_turn(found: Spoken, line: Line, begin: float, end: float) -> None:
    if not line.agent:
        found.turns.append(
            TimelineTurn(
                len(found.turns),
                ended_by="model",
                eot_probability=line.probability,
                speech_start_ms=begin,
                speech_end_ms=end,
                turn_end_ms=end + 240,
                text_ready_ms=end + 200,
            )
        )
        return
    if not found.turns:
        found.turns.append(TimelineTurn(0))
    turn = found.turns[-1]
    turn.agent_start_ms, turn.agent_end_ms, turn.played_ms = begin, end, end - begin
    turn.response = ResponseTiming(lambda: 0.0, first_token_ms=begin - 130, speech_ready_ms=begin - 25)
    if line.tool is not None:
        name, arguments, result, took = line.tool
        turn.tools.append(ToolTiming(name, begin - 150 - took, begin - 150, True, arguments, result))
    if line.source:
        turn.sources.append(CitedPassage("8f0c4f6e-2f1d-4d0a-9a57-3c1b6e0d7a21", line.source, 2, 0.81))


def store(conn: sa.Connection, data: SampleData, data_dir: Path, began: datetime) -> Call:
    """Store the call, which began then, and all that its page shows."""
    said = spoken()
    call = calls.create_inbound(
        conn,
        organization_id=data.organization_id,
        agent_id=data.agents["Harbour Dental"],
        agent_version=3,
        phone_number_id=data.number_id,
        provider="sip",
        call_sid="4f1b9c7e@192.0.2.10",
        customer_number=CALLER,
        called_number=NUMBER,
        context_variables={"customer_number": CALLER, "phone_number": NUMBER},
        metadata={"branch": "harbour"},
    )
    ended = began + timedelta(milliseconds=said.end_ms + 700)
    conn.execute(sa.update(tables.calls).where(tables.calls.c.id == call.id).values(created_at=began))
    calls.finish(
        conn,
        call.id,
        status="completed",
        ended_reason="customer_ended",
        ended_at=ended,
        answered_at=began + timedelta(seconds=1),
        transcript=said.transcript,
        timeline=[turn.to_json(0.0) for turn in said.turns],
        recording=True,
        turn_count=len(said.turns) - 1,
        analysis={
            "summary": "The caller moved their cleaning from Monday to Thursday, 19 March, at two o'clock, and asked "
            "what to bring.",
            "extractions": {"appointment_number": 427, "new_date": "Thursday, 19 March, 14:00", "satisfied": True},
            "method": "model",
        },
        cost=0.0412,
        media_quality=to_json(call_quality(_totals(said.end_ms), "PCMA")),
        sip_end={"statusCode": 200, "reasonPhrase": "OK", "byPeer": True, "q850Cause": 16, "q850Text": "Normal"},
    )
    sip_traces.store(conn, {call.id: SipTrace(_messages(began, said.end_ms + 700))})
    _deliver(conn, data.organization_id, call.id, ended)
    path = recordings.path_of(data_dir, call.id, began)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(said.recording())
    stored = calls.get_by_id(conn, call.id)
    assert stored is not None
    return stored


def _totals(ms: int) -> RtpTotals:
    packets = ms // 20
    return RtpTotals(
        received=packets - 4, received_octets=(packets - 4) * 160, lost=4, loss_runs=2, duplicate=0, reordered=1,
        foreign=0, malformed=0, sent=packets, jitter_ms=2.1, jitter_mean_ms=2.4, jitter_max_ms=9.8, packet_ms=20.0,
        buffer_ms=40.0, discarded_ms=20.0, reports=12, remote_lost=2, remote_expected=packets,
        remote_jitter_mean_ms=1.9, remote_jitter_max_ms=6.5, round_trips=12, round_trip_mean_ms=31.0,
        round_trip_max_ms=44.0,
    )  # fmt: skip


def _messages(began: datetime, end_ms: int) -> list[StoredSipMessage]:
    inbound = f"sip:{NUMBER}@192.0.2.1"
    found = [
        (0, "received", f"INVITE {inbound}", 1, True),
        (4, "sent", "100 Trying", 1, False),
        (9, "sent", "180 Ringing", 1, False),
        (1003, "sent", "200 OK", 1, True),
        (1021, "received", f"ACK {inbound}", 1, False),
        (end_ms, "received", f"BYE {inbound}", 2, False),
        (end_ms + 2, "sent", "200 OK", 2, False),
    ]
    return [
        {
            "at": iso(began + timedelta(milliseconds=ms)),
            "offset_ms": ms,
            "direction": "received" if direction == "received" else "sent",
            "transport": "udp",
            "source": PBX if direction == "received" else SERVER,
            "target": SERVER if direction == "received" else PBX,
            "summary": summary,
            "cseq": cseq,
            "sdp": sdp,
            "again": False,
            "text": _text(summary, cseq),
        }
        for ms, direction, summary, cseq, sdp in found
    ]


def _text(summary: str, cseq: int) -> str:
    first = f"SIP/2.0 {summary}" if summary[0].isdigit() else f"{summary} SIP/2.0"
    method = "BYE" if cseq == 2 else "INVITE"
    return (
        f"{first}\r\nVia: SIP/2.0/UDP {PBX};branch=z9hG4bK7c2f\r\nFrom: <sip:{CALLER}@192.0.2.10>;tag=b41d\r\n"
        f"To: <sip:{NUMBER}@192.0.2.1>;tag=90ee\r\nCall-ID: 4f1b9c7e@192.0.2.10\r\nCSeq: {cseq} {method}\r\n"
        "Content-Length: 0\r\n\r\n"
    )


def _deliver(conn: sa.Connection, organization_id: str, call_id: str, at: datetime) -> None:
    """The webhook is refused once and then accepted."""
    event = deliveries.add(
        conn, organization_id=organization_id, call_id=call_id, url=WEBHOOK, body=b"{}", secret_encrypted=None
    )
    for status, answer, took in ((503, "temporarily unavailable", 5003), (200, '{"stored": true}', 84)):
        pending = next(
            each
            for each in deliveries.due_attempts(conn, datetime.max.replace(tzinfo=at.tzinfo))
            if each.delivery.id == event.id
        )
        deliveries.record_attempt(
            conn,
            pending.attempt,
            succeeded=status == 200,
            response_status=status,
            response_body=answer,
            error=None,
            duration_ms=took,
            started_at=at,
            next_attempt_at=at + timedelta(minutes=1),
        )
