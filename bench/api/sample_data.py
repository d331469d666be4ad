"""Sample data of the API benchmarks: agents with prompts as long as real ones, and one ended call."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

import sqlalchemy as sa

from config.clock import utc_now
from storage import tables
from storage.accounts import api_keys, organizations
from storage.calls import calls
from storage.calls.calls import TranscriptItem

AGENTS: Final = 200
RATE_LIMIT: Final = 10_000_000
"""Requests per minute of the key's rate limit: more than any client can send."""
TRADES: Final = ("dental practice", "bakery", "bicycle workshop", "law office", "hotel", "veterinary clinic", "florist")
STREETS: Final = ("Harbour Street", "Mill Lane", "Station Road", "Market Square", "Castle Hill")
PROMPT: Final = (
    "You answer the telephone of a {trade} at {house} {street}. The caller dialled {{{{phone_number}}}}. Be "
    "friendly and brief: two sentences at most, no lists, no addresses of web pages. Our opening hours are {opens} "
    "to {closes} on weekdays and ten to one on Saturdays. When the caller wants an appointment, ask for the day, "
    "the time and a telephone number, one after the other, and repeat all three before you end the call. When the "
    "caller asks for a price, say that prices depend on the work and offer to be called back the same day. Parking "
    "is free behind the building, and the bus number {bus} stops in front of it. If the matter is urgent, say that "
    "someone will call back within the hour and ask for the number. Never make up facts: when you do not know "
    "something, say so, and offer a call back. End with a friendly goodbye as soon as the caller has what he or she "
    "wanted."
)
TRANSCRIPT: Final = (
    ("hello i would like to make an appointment", "Gladly. Which day would suit you?"),
    ("thursday would be fine", "Thursday is possible. In the morning or in the afternoon?"),
    ("in the morning please", "I can offer you half past nine or eleven o'clock."),
    ("half past nine is good", "Half past nine on Thursday. Which number can we reach you at?"),
    ("it is five five five zero one seven three", "Five five five, zero one seven three. Is that right?"),
    ("yes that is right", "Thank you. You have half past nine on Thursday."),
    ("where can i park", "Parking is free behind the building."),
    ("and which bus goes there", "The number twelve stops right in front of our door."),
    ("how long will it take", "About forty minutes. Is there anything else that I can do for you?"),
    ("no that is all goodbye", "Thank you for calling. Goodbye!"),
)


def agent(number: int) -> dict[str, Any]:
    """The request body that creates an agent; each number gives another agent."""
    trade, street = TRADES[number % len(TRADES)], STREETS[number % len(STREETS)]
    prompt = PROMPT.format(
        trade=trade, street=street, house=1 + number % 90, opens=7 + number % 3, closes=16 + number % 4,
        bus=1 + number % 40,
    )  # fmt: skip
    return {
        "name": f"{trade.capitalize()} {number}",
        "systemPrompt": prompt,
        "firstSpeaker": "agent",
        "agentGreeting": f"Hello, this is the {trade} in {street}. How can I help you?",
        "agentGreetingEnabled": True,
        "postCallSummaryEnabled": True,
        "postCallExtractionSchema": [
            {"name": "day", "description": "The day of the appointment", "type": "string"},
            {"name": "urgent", "description": "Whether the matter is urgent", "type": "boolean"},
        ],
        "maxCallDurationSeconds": 3600,
        "languageHint": "en",
    }


def insert_sample_data(conn: sa.Connection) -> dict[str, str]:
    """Inserts an organization, its API key and an ended call with a transcript of 20 items. Returns the key and the
    call's id."""
    organization = organizations.create(conn, "bench")
    _, key = api_keys.create(conn, organization.id, requests_per_minute=RATE_LIMIT)
    call = calls.create_inbound(
        conn,
        organization_id=organization.id,
        agent_id=str(uuid4()),
        phone_number_id=str(uuid4()),
        provider="sip",
        call_sid=str(uuid4()),
        customer_number="+15550173",
        context_variables={"phone_number": "+15550100", "returning": True},
        metadata={"campaign": "spring", "attempt": 1},
    )
    calls.mark_answered(conn, call.id, utc_now())
    transcript: list[TranscriptItem] = []
    for utterance, answer in TRANSCRIPT:
        transcript += [{"role": "user", "content": utterance}, {"role": "assistant", "content": answer}]
    summary = "The caller made an appointment for Thursday at half past nine and asked about parking and the bus."
    calls.finish(
        conn,
        call.id,
        status="completed",
        ended_reason="customer_ended",
        ended_at=utc_now(),
        transcript=transcript,
        recording=True,
        turn_count=len(TRANSCRIPT),
        analysis={"summary": summary, "extractions": {"day": "Thursday", "urgent": False}},
    )
    return {"key": key, "call_id": call.id}


def insert_copies(conn: sa.Connection, call_id: str, count: int) -> None:
    """Inserts copies of a call, one a minute before the other."""
    table = tables.calls
    row = dict(conn.execute(sa.select(table).where(table.c.id == call_id)).one()._mapping)
    times = ("created_at", "started_at", "ended_at", "updated_at")
    conn.execute(
        sa.insert(table),
        [
            {
                **row,
                "id": str(uuid4()),
                "call_sid": str(uuid4()),
                **{name: row[name] - timedelta(minutes=1 + number) for name in times},
            }
            for number in range(count)
        ],
    )


def insert_second_tenant(conn: sa.Connection) -> str:
    """Inserts a second, empty organization. Returns its API key."""
    organization = organizations.create(conn, "another")
    return api_keys.create(conn, organization.id, requests_per_minute=RATE_LIMIT)[1]
