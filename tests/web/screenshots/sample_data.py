"""A sample organization: agents, tools, documents, phone numbers and a week of calls, always the same."""

from __future__ import annotations

import asyncio
import random
from base64 import b64encode
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa

from storage import tables
from storage.accounts import audit_log
from storage.accounts.audit_log import Actor, AuditObject
from storage.calls import calls
from storage.calls.calls import Call, EndedReason, EndStatus
from storage.users import users
from storage.users.users import Role
from tests.trunkline.api_client import Client

NOW: Final = datetime(2026, 3, 12, 15, 40, tzinfo=UTC)
"""The time of the pictures."""
PBX: Final = "192.0.2.10"
ADMINISTRATION: Final = "Administration"
"""The name of the key that creates everything; it is not among the keys of the pictures."""
NUMBER: Final = "+12025550100"
CALLER: Final = "+12025550142"
PROMPT: Final = (
    "You answer the telephone of Harbour Dental. The caller dialled {{phone_number}}.\n\n"
    "Our opening hours are nine to five on weekdays. Our office is at twelve Harbour Street, next to the train "
    "station. A cleaning costs sixty dollars.\n\n"
    "Be brief and friendly. Never ask for a card number."
)
RECEPTION: Final[dict[str, Any]] = {
    "name": "Harbour Dental",
    "firstSpeaker": "agent",
    "agentGreeting": "Hello, this is Harbour Dental. How can I help you?",
    "agentGreetingEnabled": True,
    "knowledgeSearchInstructions": "Search when the caller asks about prices, insurance or a first visit",
    "postCallSummaryEnabled": True,
    "postCallExtractionSchema": [
        {"name": "appointment_number", "type": "number", "description": "The number of the appointment"},
        {"name": "new_date", "type": "string", "description": "The day and time that the caller chose"},
        {"name": "satisfied", "type": "boolean", "description": "The caller got what they wanted"},
    ],
    "transferTargets": [
        {"name": "Front desk", "description": "Billing, complaints", "number": "+12025550101", "mode": "warm_briefing"}
    ],
}
PATIENTS: Final = """# New patients

Please bring your insurance card, a list of the medicines that you take, and the name of your doctor.
Plan ten minutes to fill in a form.

# Prices

A check-up costs forty dollars, a cleaning sixty dollars. Payment is by bank transfer after the visit.

# Cancelling

Appointments can be moved or cancelled until the day before, at no cost.
"""
TOOLS: Final = (
    ("find_appointment", "Finds an appointment by its number", "GET", "appointments"),
    ("free_times", "Lists the free times of a day", "GET", "free-times"),
    ("move_appointment", "Moves an appointment to another time", "POST", "appointments/move"),
)

OWNER: Final = "anna"
PEOPLE: Final[tuple[tuple[str, Role, int | None], ...]] = (
    (OWNER, "owner", 8),
    ("ben", "editor", 200),
    ("clara", "viewer", None),
)
"""Name, role and minutes since the last sign-in; None: the user has not set a password."""


@dataclass
class SampleData:
    """What was created. `agents`: ids by name."""

    organization_id: str
    agents: dict[str, str]
    number_id: str


async def create(client: Client, organization_id: str) -> SampleData:
    """Create what an owner creates, through the API."""
    tools = [await _tool(client, *each) for each in TOOLS]
    reception = await client.agent(**RECEPTION, systemPrompt="You answer the telephone of Harbour Dental.")
    for changes in ({"systemPrompt": PROMPT}, {"toolIds": tools, "customerSilenceMs": 15_000}):
        await client.v1("PATCH", f"agents/{reception}", changes)
    others = {
        name: await client.agent(name=name, systemPrompt=prompt, firstSpeaker="agent")
        for name, prompt in (
            ("Appointment reminder", "You remind {{customer_name}} of the appointment at {{time}}."),
            ("Night line", "Our office is closed. Take a message."),
        )
    }
    agents = {"Harbour Dental": reception, **others}
    number = await client.number(NUMBER, reception, name="Reception", sipIp=PBX)
    await client.number("+12025550107", agents["Night line"], name="Night line", sipIp=PBX)
    await _document(client, reception, "New patients", "new-patients.md", "text/markdown", PATIENTS)
    await _document(
        client, reception, "Opening hours", "hours.txt", "text/plain", "Open from nine to five on weekdays."
    )
    for name in ("Booking system", "Reports"):
        await client.v1("POST", "api-keys", {"name": name, "requestsPerMinute": 600})
    return SampleData(organization_id, agents, number)


async def _tool(client: Client, name: str, description: str, method: str, path: str) -> str:
    parameter = {"name": "number", "type": "number", "description": "Number of the appointment", "required": True}
    config = {
        "url": f"https://booking.example.com/{path}",
        "method": method,
        "headers": [{"key": "Authorization", "value": "Bearer sample"}],
        "body": [parameter] if "appointment" in name else [{**parameter, "name": "day", "type": "string"}],
    }
    tool = await client.v1(
        "POST", "tools", {"name": name, "description": description, "type": "http", "config": config}
    )
    return str(tool["id"])


async def _document(client: Client, agent_id: str, name: str, filename: str, kind: str, text: str) -> None:
    content = text.encode()
    body = {
        "agentId": agent_id, "name": name, "filename": filename, "mimeType": kind, "fileSize": len(content),
        "fileBase64": b64encode(content).decode(),
    }  # fmt: skip
    document = await client.v1("POST", "knowledge", body)
    path = f"knowledge/{document['id']}"
    while (await client.v1("GET", path))["status"] != "ready":  # noqa: ASYNC110 - clients get no event of it
        await asyncio.sleep(0.1)


def backdate(conn: sa.Connection) -> None:
    """Give everything that was created a time before `NOW`."""
    for table in tables.metadata.tables.values():
        if table is not tables.calls and {"created_at", "id"} <= set(table.c.keys()):
            created = NOW - timedelta(days=9, hours=3)
            changes = {name: created for name in ("created_at", "updated_at") if name in table.c}
            conn.execute(sa.update(table).values(**changes))
    conn.execute(sa.delete(tables.api_keys).where(tables.api_keys.c.name == ADMINISTRATION))
    conn.execute(sa.update(tables.api_keys).values(last_used_at=NOW - timedelta(minutes=2)))
    for version in range(1, 4):
        at = NOW - timedelta(days=9 - 2 * version, hours=version)
        versions = tables.agent_versions
        conn.execute(sa.update(versions).where(versions.c.version == version).values(created_at=at))


def store_users(conn: sa.Connection, data: SampleData) -> None:
    """Store the users of the organization, and who changed what in the last days."""
    for name, role, minutes in PEOPLE:
        user = users.create(conn, name, role, data.organization_id)
        values: dict[str, Any] = {"created_at": NOW - timedelta(days=8)}
        if minutes is not None:
            values |= {"password_hash": "sample", "last_sign_in_at": NOW - timedelta(minutes=minutes)}
        conn.execute(sa.update(tables.users).where(tables.users.c.id == user.id).values(**values))
    conn.execute(sa.delete(tables.audit_entries))
    anna, ben, client = Actor("user", OWNER), Actor("user", "ben"), Actor("api_key", "Booking system")
    agent = AuditObject("agent", data.agents["Harbour Dental"], "Harbour Dental")
    number = AuditObject("number", data.number_id, NUMBER)
    tool = AuditObject("tool", None, "move_appointment")
    entries: tuple[tuple[int, Actor, str, AuditObject, tuple[str, ...]], ...] = (
        (9, anna, "user.create", AuditObject("user", None, "clara"), ("name", "role")),
        (26, ben, "agent.update", agent, ("systemPrompt", "voiceSpeed")),
        (55, client, "call.create", AuditObject("call", None), ()),
        (190, ben, "tool.update", tool, ("config",)),
        (1510, anna, "number.update", number, ("agentId",)),
        (1530, ben, "agent.update", agent, ("toolIds", "customerSilenceMs")),
        (
            2950,
            anna,
            "organization.update",
            AuditObject("organization", None, "Harbour Dental"),
            ("keepRecordingsDays",),
        ),
        (2960, anna, "key.create", AuditObject("key", None, "Reports"), ("name", "requestsPerMinute")),
    )
    for minutes, actor, action, about, fields in entries:
        peer = "192.0.2.30" if actor is client else "192.0.2.41"
        entry = audit_log.record(
            conn, data.organization_id, actor=actor, action=action, about=about, fields=fields, client=peer
        )
        at = NOW - timedelta(minutes=minutes)
        stored = tables.audit_entries
        conn.execute(sa.update(stored).where(stored.c.id == entry.id).values(created_at=at))


def store_history(conn: sa.Connection, data: SampleData) -> None:
    """Store a week of calls, most of them in office hours."""
    chance = random.Random(7)
    for day in range(7, -1, -1):
        weekday = (NOW - timedelta(days=day)).weekday() < 5
        for _ in range(chance.randint(22, 34) if weekday else chance.randint(3, 6)):
            at = (NOW - timedelta(days=day)).replace(hour=8, minute=0) + timedelta(seconds=chance.randint(0, 32_000))
            if at < NOW - timedelta(minutes=10):
                _store_call(conn, data, at, chance)


_ENDS: Final[tuple[tuple[EndStatus, EndedReason, int], ...]] = (
    ("completed", "customer_ended", 60),
    ("completed", "agent_ended", 22),
    ("completed", "transferred", 8),
    ("completed", "customer_silent", 3),
    ("no_answer", "no_answer", 4),
    ("failed", "busy", 2),
    ("failed", "unreachable", 1),
)


def _store_call(conn: sa.Connection, data: SampleData, at: datetime, chance: random.Random) -> None:
    outbound = chance.random() < 0.25
    ends = [each for each in _ENDS if outbound or each[0] == "completed"]
    status, reason, _ = chance.choices(ends, [weight for *_, weight in ends])[0]
    customer = f"+1202555{chance.randint(102, 199):04}"
    known: dict[str, Any] = {
        "organization_id": data.organization_id,
        "agent_id": data.agents["Appointment reminder" if outbound else "Harbour Dental"],
        "agent_version": 1 if outbound else 3,
        "phone_number_id": data.number_id,
        "provider": "sip",
        "customer_number": customer,
    }
    call: Call
    if outbound:
        call = calls.create_outbound(conn, **known, context_variables={}, metadata={})
    else:
        call = calls.create_inbound(conn, **known, call_sid="sample", called_number=NUMBER)
    answered = status == "completed"
    seconds = chance.randint(35, 260) if answered else 25
    turns = max(1, seconds // 14) if answered else 0
    gaps = [round(chance.lognormvariate(6.35, 0.28)) for _ in range(turns)]
    conn.execute(sa.update(tables.calls).where(tables.calls.c.id == call.id).values(created_at=at))
    calls.finish(
        conn,
        call.id,
        status=status,
        ended_reason=reason,
        ended_at=at + timedelta(seconds=seconds),
        answered_at=at + timedelta(seconds=3) if answered else None,
        turn_count=turns,
        timeline=[
            {"turn": number, "response_gap_ms": gap, "interrupted": chance.random() < 0.06}
            for number, gap in enumerate(gaps, 1)
        ],
        cost=round(seconds / 60 * 0.02, 4) if answered else 0.0,
    )


def live_call(conn: sa.Connection, data: SampleData, customer: str, began: datetime, agent: str) -> Call:
    """Store a call that is in progress since then."""
    call = calls.create_inbound(
        conn,
        organization_id=data.organization_id,
        agent_id=data.agents[agent],
        agent_version=1,
        phone_number_id=data.number_id,
        provider="sip",
        call_sid=customer,
        customer_number=customer,
        called_number=NUMBER,
    )
    calls.mark_answered(conn, call.id, began)
    words = ("Hello, this is Harbour Dental. How can I help you?", "Do you have time on Tuesday at ten?")
    calls.store_progress(
        conn,
        call.id,
        turn_count=1,
        transcript=[
            {"role": role, "content": text, "startMs": at, "endMs": at + 2600}
            for role, text, at in zip(("assistant", "user"), words, (600, 4100), strict=True)
        ],
    )
    return replace(call, status="in_progress", started_at=began)
