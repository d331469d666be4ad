"""An organization in which every text that someone else can write is hostile."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import sqlalchemy as sa

from calls.admission.refused_invites import RefusedInvite, RefusedInvites
from calls.call_record.finished_turn import FinishedTurn
from calls.call_record.timeline import CitedPassage, TimelineTurn, ToolTiming
from calls.knowledge.ingestion import DocumentIngester
from calls.live.capacity import CallCapacity, Capacity
from calls.live.events import LiveEvents
from calls.live.live_call import TurnNews
from calls.live.live_calls import LiveCalls
from calls.live.server_state import ModelLoad, ServerState
from config.clock import iso, utc_now
from models.loading.catalogue import LanguageModelInfo, language_model_id
from sipcore.trunks.trunk import TrunkStatus
from storage import tables
from storage.accounts import audit_log
from storage.accounts.audit_log import Actor, AuditObject
from storage.agents import remote_models
from storage.agents.remote_models import StoredRemoteModel
from storage.calls import calls, sip_traces, transfers
from storage.calls.calls import Call
from storage.calls.sip_traces import SipTrace, StoredSipMessage
from storage.calls.transfers import Transfer
from storage.webhooks import deliveries
from tests.api.conftest import Api, StartApi
from tests.api.knowledge_client import KnowledgeClient
from tests.fakes.fake_models import listed_models
from tests.web.stored_calls import store_call

HTML: Final = '<img src=x onerror="window.broken=1"><script>window.broken=1</script>'
LONG: Final = "W" * 90
REMOTE: Final = "gpu"
OVERRIDE: Final = "\u202e"
"""Reverses what follows, beyond its own text if that is not isolated."""


def name(place: str) -> str:
    """A name that the API accepts."""
    return f"={place} {HTML} javascript:window.broken=1 {LONG}"


def text(place: str) -> str:
    """A text that the API does not check: of a caller, a peer, a model, a document or a tool."""
    return f"={place} {OVERRIDE}{HTML}\x07 javascript:window.broken=1 ../../{LONG}"


@dataclass
class HostileWorld:
    """The server, and the ids of what its pages show."""

    api: Api
    agent_id: str
    number_id: str
    tool_id: str
    call_id: str
    live_id: str


async def hostile_world(start_api: StartApi) -> HostileWorld:
    """Start the server and store everything."""
    live, refused = LiveCalls(LiveEvents()), RefusedInvites()
    state = ServerState("full", ModelLoad(4.0, 3.0, 12, True), {"disk": text("warning")})
    model = LanguageModelInfo(language_model_id("x"), name("model"), "builtin", 4096, True)
    api: Api = await start_api(
        {"dashboard": {"listen": True}},
        catalogue=listed_models([f"{HTML}/{LONG}"], [model]),
        events=live.events,
        live_call=live.details,
        capacity=lambda *_: Capacity(CallCapacity(9, 10, 1), state),
        trunk_status=lambda _: TrunkStatus("failed", text("failure")),
        refused_invites=refused.of,
    )
    agent_id, number_id, tool_id = await _resources(api)
    await _documents(api, agent_id)
    call = await store_call(api, agent_id)
    await api.services.database.write(lambda conn: _spoil(conn, call))
    await api.services.database.write(lambda conn: _store_administration(conn, api.organization_id))
    api.services.remote_outcomes.record(REMOTE, text("remote failure"))
    refused.add(
        api.organization_id,
        RefusedInvite(utc_now(), number_id, "192.0.2.10", text("dialled"), text("caller"), 486, text("refusal")),
    )
    live_id = await _live_call(api, live, agent_id)
    return HostileWorld(api, agent_id, number_id, tool_id, call.id, live_id)


async def _resources(api: Api) -> tuple[str, str, str]:
    """Creates what users name, through the API; returns the ids of agent, number and tool."""
    await api.services.database.write(
        lambda conn: conn.execute(sa.update(tables.organizations).values(name=name("organization")))
    )
    config = {
        "url": f"https://tools.example/{LONG}",
        "method": "GET",
        "headers": [{"key": "X-Key", "value": HTML}],
        "body": [{"name": name("parameter"), "type": "string", "description": text("parameter")}],
    }
    tool = await api.create(
        "/tools", {"name": name("tool"), "type": "http", "description": text("tool"), "config": config}
    )
    agent = await api.create(
        "/agents",
        {
            "name": name("agent"),
            "systemPrompt": f"{text('prompt')} {{{{{LONG}}}}}",
            "agentGreeting": text("greeting"),
            "knowledgeSearchInstructions": text("instructions"),
            "postCallWebhookUrl": f"https://receiver.test/{LONG}",
            "postCallExtractionSchema": [
                {"name": name("extraction"), "type": "string", "description": text("extraction")}
            ],
            "transferTargets": [
                {"name": name("target"), "description": text("target"), "number": "100", "mode": "cold"}
            ],
            "toolIds": [tool["id"]],
        },
    )
    await api("PATCH", f"/agents/{agent['id']}", {"systemPrompt": text("changed"), "name": name("renamed agent")})
    trunk = {"provider": "sip", "sipMode": "ip_allowlist", "sipIp": "192.0.2.10"}
    number = await api.create(
        "/phone-numbers", {"number": "700", "name": name("number"), "agentId": agent["id"], **trunk}
    )
    await api.create("/api-keys", {"name": name("key")})
    await api.create("/webhook-endpoints", {"url": f"https://receiver.test/{LONG}", "description": text("endpoint")})
    return agent["id"], number["id"], tool["id"]


async def _documents(api: Api, agent_id: str) -> None:
    """One document that can be searched, and one that failed."""
    services = api.services
    ingester = DocumentIngester(services.database, services.settings.data_dir)
    running, reader = asyncio.create_task(ingester.run()), KnowledgeClient(api, ingester, agent_id)
    for number in range(2):
        named = {"name": name(f"document {number}"), "filename": f"../../{name('file')}"}
        content = f"A berth costs {number} euros. {text('passage')}".replace("\x07", "")
        document = await reader.read(content.encode(), **named)
    running.cancel()
    failed = {"status": "failed", "error": text("document error")}
    documents = tables.knowledge_documents
    update = sa.update(documents).where(documents.c.id == document["id"]).values(**failed)
    await services.database.write(lambda conn: conn.execute(update))


def _spoil(conn: sa.Connection, call: Call) -> None:
    """Makes all texts of a stored call hostile, and stores its transfer and another attempt of its webhook."""
    values: dict[str, Any] = {
        "customer_number": text("customer"),
        "called_number": text("called"),
        "call_sid": text("sid"),
        "context_variables": {name("variable"): text("value"), "nested": {name("key"): [text("item")]}},
        "metadata": {name("metadata"): text("metadata value")},
        "analysis": {
            "summary": text("summary"),
            "extractions": {name("extracted"): text("extraction")},
            "method": "model",
            "error": text("analysis error"),
        },
        "sip_end": {
            "statusCode": 486,
            "reasonPhrase": text("phrase"),
            "q850Cause": 17,
            "q850Text": text("cause"),
            "byPeer": True,
        },
        "transcript": [
            {"role": role, "content": text(f"{role} says"), "startMs": at, "endMs": at + 900}
            for at, role in ((1000, "user"), (4000, "assistant"), (7000, "user"))
        ],
        "timeline": [_turn().to_json(0.0)],
    }
    conn.execute(sa.update(tables.calls).where(tables.calls.c.id == call.id).values(**values))
    sip_traces.store(conn, {call.id: SipTrace([_message()], 3)})
    delivery = deliveries.of_call(conn, call.id)[0]
    attempt = deliveries.add_manual_attempt(conn, delivery, scheduled=1)
    deliveries.record_attempt(
        conn,
        attempt,
        succeeded=False,
        response_status=500,
        response_body=text("answer"),
        error=text("webhook error"),
        duration_ms=31,
        started_at=utc_now(),
    )
    at = utc_now()
    transfers.insert(
        conn,
        Transfer(
            id="3f6d1a52-6a0f-4a53-9d3b-1f4d6f1e2b90", organization_id=call.organization_id, parent_call_id=call.id,
            mode="warm_briefing", status="declined", target_name=name("transfer"), number="100",
            reason=text("reason"), summary=text("briefing"), requested_by="agent", created_at=at,
            decline_reason=text("decline"), ended_at=at,
            attempts=[
                {
                    "number": text("attempt"), "startedAt": iso(at), "endedAt": iso(at), "sipStatus": 486,
                    "outcome": "busy",
                },
            ],
        ),
    )  # fmt: skip


def _store_administration(conn: sa.Connection, organization_id: str) -> None:
    """Stores a remote model, and an entry of the audit log about what is gone."""
    remote_models.add(
        conn,
        StoredRemoteModel(
            name=REMOTE, kind="tts", base_url=f"https://models.test/{LONG}", model=text("remote model"),
            voices=[[text("remote voice"), None]],
        ),
    )  # fmt: skip
    audit_log.record(
        conn,
        organization_id,
        actor=Actor("command", text("actor")),
        action=text("action"),
        about=AuditObject("agent", None, text("audited")),
        fields=[text("field")],
        client=text("client"),
        detail=text("detail"),
    )


def _turn() -> TimelineTurn:
    return TimelineTurn(
        1,
        ended_by="model",
        speech_start_ms=1000.0,
        speech_end_ms=3000.0,
        turn_end_ms=3300.0,
        agent_start_ms=4000.0,
        agent_end_ms=6000.0,
        tools=[
            ToolTiming(name("called tool"), 3100.0, 3400.0, False, {name("argument"): text("argument")}, text("result"))
        ],
        sources=[CitedPassage("8f0c4f6e-2f1d-4d0a-9a57-3c1b6e0d7a21", text("cited"), 1, 0.5)],
    )


def _message() -> StoredSipMessage:
    header = text("header").replace("\x07", "")
    return {
        "at": iso(utc_now()),
        "offset_ms": 0,
        "direction": "received",
        "transport": "udp",
        "source": "192.0.2.2:5060",
        "target": "192.0.2.1:5060",
        "summary": f"INVITE sip:{text('uri')}@192.0.2.1",
        "cseq": 1,
        "sdp": False,
        "again": False,
        "text": f"INVITE sip:100@192.0.2.1 SIP/2.0\r\nFrom: {header} <sip:a@192.0.2.2>\r\n\r\n",
    }


async def _live_call(api: Api, live: LiveCalls, agent_id: str) -> str:
    """Begins a call, with words that are over and words that are not; returns its id."""

    def store(conn: sa.Connection) -> Call:
        call = calls.create_inbound(
            conn, organization_id=api.organization_id, agent_id=agent_id, phone_number_id="", provider="sip",
            call_sid="x", customer_number=text("live customer"), called_number=text("live called"),
        )  # fmt: skip
        calls.mark_answered(conn, call.id, call.created_at - timedelta(seconds=30))
        calls.store_progress(
            conn, call.id, turn_count=1, transcript=[{"role": "user", "content": text("live words"), "startMs": 100}]
        )
        return calls.get_by_id(conn, call.id) or call

    call = await api.services.database.write(store)
    live.begin(call)
    live.events.follow(api.organization_id)
    live.of(call).allow_partials()
    live.of(call).on_partial_transcript(text("partial"))
    live.publish_turn(
        api.organization_id,
        TurnNews(call.id, 2, FinishedTurn("user", text("turn"), 2000, 2800), TimelineTurn(2).to_json(0.0)),
    )
    return call.id
