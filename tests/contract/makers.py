"""How a test gets one resource of each kind in an organization, as its user or as its calls would make it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

import numpy as np
import sqlalchemy as sa

from calls.call_record.timeline import Timeline, ToolTiming
from media.recording import wav_header
from storage.accounts import audit_log
from storage.accounts.audit_log import Actor, AuditObject
from storage.background_sounds import sounds
from storage.calls import calls, recordings
from storage.document_reader.base.blocks import heading, paragraph
from storage.document_reader.chunker import chunks_of
from storage.knowledge import documents
from storage.webhooks import deliveries
from tests.contract.client import Client
from tests.contract.server import Server
from tests.contract.tables.knowledge import DOCUMENTS

Maker = Callable[[Server, str, Client, int], str]
"""Takes the organization's id, its client and a number that tells this one from its like; gives the id."""
SOUND: Final = wav_header(8000, 256) + bytes(range(256)) * 4
TALK: Final[list[calls.TranscriptItem]] = [
    {"role": "user", "content": "Hi", "startMs": 700, "endMs": 900},
    {"role": "assistant", "content": "Hello", "startMs": 1500, "endMs": 2100},
]


def _turns() -> list[dict[str, Any]]:
    """A turn for whose response two tools were called."""
    timeline = Timeline(0.0, lambda: 900.0)
    timeline.add_caller_turn(1, None)
    timeline.turn.tools += [
        ToolTiming("look_up", 1000.0, 1400.0, True, {"order": 7}, "shipped"),
        ToolTiming("send", 1200.0, 1300.0, False, None, "No answer."),
    ]
    return timeline.items()


def _posted(path: str, body: Callable[[int], dict[str, Any]]) -> Maker:
    def make(_server: Server, _organization_id: str, client: Client, number: int) -> str:
        answer = client("POST", path, body(number))
        assert answer.status == 201, answer.body
        made: str = answer.data["id"]
        return made

    return make


def live_call(server: Server, organization_id: str, **changes: Any) -> calls.Call:
    """An inbound call that rings."""
    facts: dict[str, Any] = {
        "organization_id": organization_id,
        "agent_id": None,
        "phone_number_id": None,
        "provider": "sip",
        "call_sid": "abc@pbx",
        "customer_number": "+41441234567",
        "called_number": "+41447654321",
        "context_variables": {"name": "Ada", "age": 36, "vip": True},
        "metadata": {"order": {"number": 7}},
    }
    return server.write(lambda conn: calls.create_inbound(conn, **(facts | changes)))


def ended_call(server: Server, organization_id: str, *, cost: float | None = None, **changes: Any) -> calls.Call:
    """A call that was answered, talked, was recorded and ended; its webhook waits to be sent."""
    call = live_call(server, organization_id, **changes)

    def end(conn: sa.Connection) -> calls.Call | None:
        calls.mark_answered(conn, call.id, call.created_at)
        deliveries.add(
            conn,
            organization_id=organization_id,
            call_id=call.id,
            url="https://receiver.example/hook",
            body=b"{}",
            secret_encrypted=None,
        )
        return calls.finish(
            conn,
            call.id,
            status="completed",
            ended_reason="agent_ended",
            ended_at=call.created_at + timedelta(seconds=30),
            transcript=TALK,
            timeline=_turns(),
            recording=True,
            turn_count=1,
            analysis={
                "summary": "A greeting",
                "extractions": {"ok": True, "amount": 2.5, "note": "x", "unsaid": None},
                "method": "extractive",
                "error": "extraction: the answer is no JSON",
            },
            cost=cost,
        )

    ended = server.write(end)
    assert ended is not None
    path = recordings.path_of(server.services.settings.data_dir, call.id, call.created_at)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(SOUND)
    return ended


def _call(server: Server, organization_id: str, _client: Client, number: int) -> str:
    return ended_call(server, organization_id, call_sid=f"{number}@pbx").id


def _call_event(server: Server, organization_id: str, _client: Client, number: int) -> str:
    """An event of a call, sent to an endpoint."""
    call = ended_call(server, organization_id, call_sid=f"event-{number}@pbx")
    event: dict[str, Any] = {"url": "https://example.com/", "body": b"{}", "secret_encrypted": None}
    event |= {"organization_id": organization_id, "call_id": call.id, "event": "call.answered"}
    return server.write(lambda conn: deliveries.add(conn, **event)).id


def _queued_call(server: Server, organization_id: str, _client: Client, _number: int) -> str:
    facts: dict[str, Any] = {"agent_id": str(uuid4()), "phone_number_id": str(uuid4()), "provider": "sip"}
    facts |= {"customer_number": "+41441234567", "context_variables": {}, "metadata": {}}
    return server.write(lambda conn: calls.create_outbound(conn, organization_id=organization_id, **facts)).id


def _talking_call(server: Server, organization_id: str, _client: Client, _number: int) -> str:
    call = live_call(server, organization_id)
    server.write(lambda conn: calls.mark_answered(conn, call.id, call.created_at))
    return call.id


def _chat(server: Server, organization_id: str, client: Client, number: int) -> str:
    agent_id = MAKERS["agent"](server, organization_id, client, number)
    facts: Any = {"agent_id": agent_id, "agent_version": 1, "context_variables": {}, "metadata": {}}
    return server.write(lambda conn: calls.create_chat(conn, organization_id=organization_id, **facts)).id


def _audit_entry(server: Server, organization_id: str, _client: Client, _number: int) -> str:
    actor, about = Actor("user", "anna", str(uuid4())), AuditObject("agent", str(uuid4()), "Reception")
    entry: dict[str, Any] = {"actor": actor, "action": "agent.update", "about": about, "fields": ["name"]}
    return server.write(lambda conn: audit_log.record(conn, organization_id, **entry)).id


def _trunk(server: Server, organization_id: str, client: Client, number: int) -> str:
    """A number that calls can go out from; its host is nobody else's."""
    trunk = {"provider": "sip", "sipMode": "ip_allowlist", "sipIp": f"pbx-{organization_id}.example"}
    return _posted("/phone-numbers", lambda n: {"number": f"2{n:03}", **trunk})(server, organization_id, client, number)


def _user(server: Server, organization_id: str, client: Client, number: int) -> str:
    """A viewer who is invited; no other user of the server has the name."""
    body = {"name": f"user-{number}-of-{organization_id}", "role": "viewer"}
    return _posted("/users", lambda _: body)(server, organization_id, client, number)


def _sound(server: Server, organization_id: str, _client: Client, number: int) -> str:
    """Half a second of silence."""
    sound_id = str(uuid4())
    sounds.write_file(server.services.settings.data_dir, sound_id, np.zeros(8000, np.int16))
    fields = sounds.BackgroundSoundFields(name=f"Beep {number}", description=None, file_size=8044, duration_ms=500)
    return server.write(lambda conn: sounds.create(conn, organization_id, sound_id, fields)).id


def _document(server: Server, organization_id: str, client: Client, number: int) -> str:
    """For an agent of its own."""
    agent_id = MAKERS["agent"](server, organization_id, client, number)
    body = DOCUMENTS.least() | {"agentId": agent_id, "name": f"Prices {number}"}
    return _posted("/knowledge", lambda _: body)(server, organization_id, client, number)


def ready_document(server: Server, client: Client, agent_id: str, name: str, sections: dict[str, str]) -> None:
    """A document that was read into a passage for each of these sections."""
    body = DOCUMENTS.least() | {"agentId": agent_id, "name": name}
    document_id = client("POST", "/knowledge", body).data["id"]

    def read(conn: sa.Connection) -> bool:
        (document,) = (each for each in documents.claim_pending(conn, limit=1000) if each.id == document_id)
        blocks = [block for title, text in sections.items() for block in (heading(title, 1), paragraph(text))]
        return documents.add_chunks(conn, document, list(chunks_of(blocks))) and documents.finish(conn, document_id)

    assert server.write(read)


def _tool(number: int) -> dict[str, Any]:
    config = {"url": "https://example.com/", "method": "GET"}
    return {"name": f"Look up {number}", "type": "http", "config": config}


MAKERS: dict[str, Maker] = {
    "agent": _posted("/agents", lambda number: {"name": f"Anna {number}", "knowledgeSearchInstructions": "For prices"}),
    "call": _call,
    "call event": _call_event,
    "queued call": _queued_call,
    "talking call": _talking_call,
    "chat": _chat,
    "tool": _posted("/tools", _tool),
    "second tool": _posted("/tools", lambda number: {**_tool(number), "name": f"Find {number}"}),
    "webhook endpoint": _posted("/webhook-endpoints", lambda number: {"url": f"https://example.com/{number}"}),
    "phone number": _posted("/phone-numbers", lambda number: {"number": f"1{number:03}", "provider": "sip"}),
    "trunk": _trunk,
    "knowledge document": _document,
    "background sound": _sound,
    "user": _user,
    "audit entry": _audit_entry,
    "api key": _posted("/api-keys", lambda number: {"name": f"Web shop {number}"}),
}


def furnished(server: Server, organization_id: str, client: Client) -> dict[str, str]:
    """One of each kind."""
    return {kind: make(server, organization_id, client, 0) for kind, make in MAKERS.items()}
