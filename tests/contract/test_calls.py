"""Calls as lists and details show them, and the filters of their list."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote, urlencode
from uuid import uuid4

import pytest

from calls.call_record.billing import RateCard, charge
from calls.call_record.metering import CallUsage
from config.clock import iso, utc_now
from storage.calls import calls, deletion
from tests.contract.kinds import NO_ID
from tests.contract.makers import SOUND, TALK, ended_call, live_call
from tests.contract.server import Server
from tests.contract.table import Record
from tests.contract.tables.calls import (
    ATTEMPT,
    COST,
    DETAIL,
    DIRECTIONS,
    ENDED_REASONS,
    LISTED,
    STATUSES,
    TOOL_ITEM,
    TRANSFER_CALL,
    USAGE,
)
from tests.contract.world import World

AGENTS: Final = (NO_ID, NO_ID.replace("0b9f", "1b9f"))
UNKNOWN_WHILE_IT_RINGS: Final = {
    *("durationSeconds", "recordingUrl", "endedReason", "parentCallId", "transferType", "transferStatus"),
    *("recordingRemovedAt", "recordingAbsentReason", "transcriptRemovedAt"),
    *("startedAt", "endedAt", "analysis", "mediaQuality", "sipEnd", "agentId", "agentVersion", "phoneNumberId", "live"),
    "node",
}


def _answered(server: Server, call: calls.Call) -> calls.Call:
    server.write(lambda conn: calls.mark_answered(conn, call.id, call.created_at))
    return call


REMOVED: Final = ("recordingRemovedAt", "recordingAbsentReason", "transcriptRemovedAt")


STATES: dict[str, Callable[[Server, str], calls.Call]] = {
    "ringing": live_call,
    "in_progress": lambda server, organization_id: _answered(server, live_call(server, organization_id)),
    "completed": ended_call,
}


@pytest.mark.parametrize("status", STATES)
def test_a_call_shows_exactly_its_rows(server: Server, world: World, status: str) -> None:
    stored = STATES[status](server, world.organization_id)
    answer = world.client("GET", f"/calls/{stored.id}")
    assert Record(DETAIL).misfits(answer.data) == []
    assert answer.data["status"] == status
    items = {each["id"]: each for each in world.client("GET", "/calls?limit=100").data}
    assert Record(LISTED).misfits(items[stored.id]) == []
    assert answer.data == {**answer.data, **items[stored.id], "recordingUrl": answer.data["recordingUrl"]}


def test_what_is_not_known_while_it_rings_is_null(server: Server, world: World) -> None:
    call = world.client("GET", f"/calls/{live_call(server, world.organization_id).id}").data
    assert {name for name, value in call.items() if value is None} == UNKNOWN_WHILE_IT_RINGS
    assert (call["transcript"], call["transferCalls"], call["turnCount"]) == ([], [], 0)


def test_an_ended_call_shows_what_was_said_and_passed(server: Server, world: World) -> None:
    stored = ended_call(server, world.organization_id)
    call = world.client("GET", f"/calls/{stored.id}").data
    assert call["transcript"] == TALK
    assert call["analysis"] == stored.analysis
    assert call["contextVariables"] == stored.context_variables
    assert call["metadata"] == stored.metadata
    assert (call["durationSeconds"], call["turnCount"], call["endedReason"]) == (30, 1, "agent_ended")
    assert (call["customerNumber"], call["calledNumber"]) == ("+41441234567", "+41447654321")
    assert (call["callSid"], call["provider"]) == ("abc@pbx", "sip")
    assert call["organizationId"] == world.organization_id


def test_what_was_deleted_tells_since_when_and_why(server: Server) -> None:
    owner, client = server.organization()
    kept = ended_call(server, owner)
    before = client("GET", f"/calls/{kept.id}").data
    assert {before[name] for name in REMOVED} == {None}
    begun, after_its_end = utc_now().replace(microsecond=0), utc_now() + timedelta(days=30)
    server.write(lambda conn: deletion.delete_recordings(conn, owner, after_its_end, 1000))
    server.write(lambda conn: deletion.delete_transcripts(conn, owner, after_its_end, 1000))
    call = client("GET", f"/calls/{kept.id}").data
    assert Record(DETAIL).misfits(call) == []
    assert (call["recordingUrl"], call["transcript"], call["recordingAbsentReason"]) == (None, [], "retention")
    assert all(datetime.fromisoformat(call[name]) >= begun for name in ("recordingRemovedAt", "transcriptRemovedAt"))


def test_a_cost_is_shown_where_there_is_one(server: Server, world: World) -> None:
    billed = ended_call(server, world.organization_id, cost=0.25)
    detail = world.client("GET", f"/calls/{billed.id}").data
    assert Record((*DETAIL, COST)).misfits(detail) == []
    assert detail["cost"] == 0.25


def test_a_call_that_was_billed_shows_by_what(server: Server) -> None:
    organization_id, client = server.organization(plan="paid")
    stored = ended_call(server, organization_id)
    usage = CallUsage(prompt_tokens=9, completion_tokens=1, heard_s=1.5, spoken_characters=20)
    server.write(lambda conn: charge(conn, stored, usage, RateCard(tokens=Decimal(2))))
    detail = client("GET", f"/calls/{stored.id}").data
    assert Record((*DETAIL, COST, USAGE)).misfits(detail) == []
    assert detail["cost"] == 0.02
    seconds = detail["usage"].pop("telephonySeconds")
    assert detail["durationSeconds"] == round(seconds)
    assert detail["usage"] == {"promptTokens": 9, "completionTokens": 1, "heardSeconds": 1.5, "spokenCharacters": 20}
    (listed,) = client("GET", "/calls").data
    assert Record((*LISTED, COST)).misfits(listed) == []


def test_a_call_that_is_free_shows_no_usage(server: Server, world: World) -> None:
    stored = ended_call(server, world.organization_id)
    server.write(lambda conn: charge(conn, stored, CallUsage(heard_s=1.5), RateCard(speech_to_text=Decimal(2))))
    assert Record(DETAIL).misfits(world.client("GET", f"/calls/{stored.id}").data) == []


@pytest.mark.parametrize("reason", ENDED_REASONS)
def test_every_reason_of_an_end_can_be_shown(server: Server, world: World, reason: Any) -> None:
    stored = live_call(server, world.organization_id)
    at = stored.created_at + timedelta(seconds=1)
    server.write(lambda conn: calls.finish(conn, stored.id, status="failed", ended_reason=reason, ended_at=at))
    assert world.client("GET", f"/calls/{stored.id}").data["endedReason"] == reason


def test_a_recording_is_a_wav_with_ranges(world: World) -> None:
    path = f"/calls/{world.own['call']}/recording"
    whole = world.client("GET", path)
    assert (whole.status, whole.content, whole.headers["Content-Type"]) == (200, SOUND, "audio/wav")
    part = world.client("GET", path, headers={"Range": "bytes=10-19"})
    assert (part.status, part.content) == (206, SOUND[10:20])
    beyond = world.client("GET", path, headers={"Range": f"bytes={len(SOUND)}-"})
    assert (beyond.status, set(beyond.body)) == (416, {"error"})


def test_a_transfer_shows_exactly_its_rows(server: Server, world: World) -> None:
    call_id = _answered(server, live_call(server, world.organization_id)).id
    path, order = f"/calls/{call_id}/transfer", {"target": "SALES", "mode": "warm_briefing"}
    begun = world.client("POST", path, order | {"reason": "x" * 500, "summary": "é" * 2000})
    assert (begun.status, TRANSFER_CALL.misfits(begun.data)) == (201, [])
    assert (begun.data["transferType"], begun.data["transferStatus"]) == ("warm_briefing", "initiated")
    assert (begun.data["targetName"], begun.data["requestedBy"]) == ("Sales", "api")
    call = world.client("GET", f"/calls/{call_id}").data
    assert call["transferCalls"] == [begun.data]
    assert (call["transferType"], call["transferStatus"]) == ("warm_briefing", "initiated")
    items = {each["id"]: each for each in world.client("GET", "/calls?limit=100").data}
    assert (items[call_id]["transferCalls"], items[call_id]["transferStatus"]) == ([], "initiated")
    assert world.client("POST", path, order).status == 409


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("target", bad) for bad in ("", "x" * 256, "a\nb", None, 1)),
        *(("mode", bad) for bad in ("", "warm", "COLD", 1)),
        *(("reason", bad) for bad in ("x" * 501, 1)),
        *(("summary", bad) for bad in ("x" * 2001, 1)),
    ],
    ids=lambda each: f"{each!r:.20}",
)
def test_a_malformed_field_of_a_transfer_is_named(server: Server, world: World, name: str, value: Any) -> None:
    call_id = _answered(server, live_call(server, world.organization_id)).id
    answer = world.client("POST", f"/calls/{call_id}/transfer", {"target": "Sales", name: value})
    assert answer.fields == {name}


def test_a_transfer_target_that_the_agent_lacks_is_named(server: Server, world: World) -> None:
    call_id = _answered(server, live_call(server, world.organization_id)).id
    assert world.client("POST", f"/calls/{call_id}/transfer", {"target": "Nobody"}).fields == {"target"}


def test_a_call_that_is_not_in_progress_cannot_be_transferred(server: Server, world: World) -> None:
    for call in (live_call(server, world.organization_id), ended_call(server, world.organization_id)):
        assert world.client("POST", f"/calls/{call.id}/transfer", {"target": "Sales"}).status == 409


@pytest.mark.parametrize("action", ["hold", "unhold"])
def test_a_hold_shows_the_call_and_is_idempotent(server: Server, world: World, action: str) -> None:
    call_id = _answered(server, live_call(server, world.organization_id)).id
    shown = world.client("GET", f"/calls/{call_id}").data
    for _ in range(2):
        answer = world.client("POST", f"/calls/{call_id}/{action}")
        assert (answer.status, answer.data) == (200, shown)


@pytest.mark.parametrize("action", ["hold", "unhold"])
def test_only_a_call_in_progress_can_be_held(server: Server, world: World, action: str) -> None:
    for call in (live_call(server, world.organization_id), ended_call(server, world.organization_id)):
        assert world.client("POST", f"/calls/{call.id}/{action}").status == 409
    assert world.client("POST", f"/calls/{uuid4()}/{action}").status == 404


def test_a_call_without_a_recording_has_none_to_give(server: Server, world: World) -> None:
    silent = live_call(server, world.organization_id)
    answer = world.client("GET", f"/calls/{silent.id}/recording")
    assert (answer.status, answer.body) == (404, {"error": "Recording not found"})


def test_a_transcript_stands_alone(world: World) -> None:
    answer = world.client("GET", f"/calls/{world.own['call']}/transcript")
    assert answer.data == {"callId": world.own["call"], "status": "completed", "transcript": TALK}


def test_a_transcript_with_tools_shows_exactly_its_rows(world: World) -> None:
    answer = world.client("GET", f"/calls/{world.own['call']}/transcript?include=tools")
    tools = [each for each in answer.data["transcript"] if each["role"] == "tool"]
    assert [TOOL_ITEM.misfits(each) for each in tools] == [[], []]
    assert [each["role"] for each in answer.data["transcript"]] == ["user", "tool", "tool", "assistant"]
    assert [each for each in answer.data["transcript"] if each["role"] != "tool"] == TALK


def test_the_words_of_a_transcript_have_times(server: Server, world: World) -> None:
    stored = ended_call(server, world.organization_id)
    plain = world.client("GET", f"/calls/{stored.id}/transcript").data["transcript"]
    timed = world.client("GET", f"/calls/{stored.id}/transcript?include=tools,words").data["transcript"]
    said = [item for item in timed if item["role"] != "tool"]
    assert len(said) == len(plain) < len(timed)
    for item in said:
        starts = item.pop("wordStartsMs")
        assert item.pop("wordSource") == "estimate"
        assert len(starts) == len(item["content"].split())
        assert item["startMs"] <= min(starts, default=item["startMs"]) and max(starts, default=0) <= item["endMs"]
    assert said == plain


@pytest.mark.parametrize("value", ["", "tool", "everything", "tools,", "words,tools"])
def test_an_unknown_value_of_include_is_named(world: World, value: str) -> None:
    assert world.client("GET", f"/calls/{world.own['call']}/transcript?include={value}").fields == {"include"}


def test_an_attempt_at_a_webhook_shows_exactly_its_rows(server: Server, world: World) -> None:
    path = f"/calls/{ended_call(server, world.organization_id).id}/webhook-deliveries"
    made = world.client("POST", path)
    attempts = [made.data, *world.client("GET", path).data]
    assert (made.status, made.data["manual"], made.data["status"]) == (201, True, "pending")
    assert [ATTEMPT.misfits(each) for each in attempts] == [[]] * 3


class Stock:
    """An organization with a ringing call of one agent and, later, an ended one of another."""

    def __init__(self, server: Server) -> None:
        organization_id, self.client = server.organization()
        self.live = live_call(server, organization_id, agent_id=AGENTS[0])
        self.ended = ended_call(server, organization_id, agent_id=AGENTS[1])
        self.names = {self.live.id: "live", self.ended.id: "ended"}

    def moment(self, text: str) -> str:
        """`live+1` is a millisecond after the live call was made; other text stands for itself."""
        for call, name in ((self.live, "live"), (self.ended, "ended")):
            if text.startswith(name):
                return iso(call.created_at + timedelta(milliseconds=int(text.removeprefix(name) or 0)))
        return text


@pytest.fixture(scope="module")
def stock(server: Server) -> Stock:
    return Stock(server)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, "live ended"),
        ({"agentId": AGENTS[0]}, "live"),
        ({"agentId": AGENTS[0].upper()}, "live"),
        ({"agentId": AGENTS[0].replace("0b9f", "2b9f")}, ""),
        *(({"status": status}, {"ringing": "live", "completed": "ended"}.get(status, "")) for status in STATUSES),
        *(({"direction": direction}, "live ended" if direction == "inbound" else "") for direction in DIRECTIONS),
        ({"status": "completed", "agentId": AGENTS[0]}, ""),
        ({"from": "live"}, "live ended"),
        ({"from": "ended+1"}, ""),
        ({"to": "ended"}, "live ended"),
        ({"to": "live-1"}, ""),
        ({"from": "live", "to": "ended"}, "live ended"),
        ({"from": "2020-01-01"}, "live ended"),
        ({"from": "2020-01-01T00:00:00"}, "live ended"),
        ({"from": "2020-01-01T00:00:00.123456+14:00"}, "live ended"),
        ({"from": "2099-01-01T00:00:00Z"}, ""),
        ({"to": "2020-01-01T00:00:00Z"}, ""),
    ],
    ids=str,
)
def test_a_list_is_narrowed_by_its_filters(stock: Stock, query: dict[str, str], expected: str) -> None:
    text = urlencode({name: stock.moment(value) for name, value in query.items()})
    answer = stock.client("GET", f"/calls?{text}")
    assert answer.status == 200
    found = {stock.names[each["id"]] for each in answer.data}
    assert found == set(expected.split())
    assert answer.body["pagination"]["total"] == len(found)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("agentId", bad) for bad in ("", "x", NO_ID[:-1], NO_ID.replace("-", ""), f"{{{NO_ID}}}")),
        *(("status", bad) for bad in ("", "done", "COMPLETED", "queued,ringing")),
        *(("direction", bad) for bad in ("", "both", "INBOUND")),
        *((name, bad) for name in ("from", "to") for bad in ("", "yesterday", "1700000000", "2026-13-01T00:00:00Z")),
        ("from", "0001-01-01T00:00:00+14:00"),
        *(("phoneNumberId", bad) for bad in ("", "x", NO_ID[:-1])),
        *(("endedReason", bad) for bad in ("", "bored", "BUSY")),
        *((name, bad) for name in ("ended", "test", "interrupted") for bad in ("", "1", "TRUE", "yes", "null")),
        *(("minResponseGapMs", bad) for bad in ("", "-1", "1.5", "86400001", "x")),
    ],
)
def test_a_malformed_filter_is_named(world: World, name: str, value: str) -> None:
    assert world.client("GET", f"/calls?{name}={quote(value)}").fields == {name}


GOOD_FILTERS = {
    "agentId": NO_ID,
    "phoneNumberId": NO_ID,
    "status": "queued",
    "direction": "inbound",
    "from": "2026-01-01",
    "to": "2026-01-01",
    "endedReason": "busy",
    "ended": "true",
    "test": "false",
    "interrupted": "true",
    "minResponseGapMs": "0",
}


@pytest.mark.parametrize("name", GOOD_FILTERS)
def test_a_filter_that_is_given_twice_is_named(world: World, name: str) -> None:
    good = GOOD_FILTERS[name]
    assert world.client("GET", f"/calls?{name}={good}&{name}={good}").fields == {name}


def test_a_time_is_shown_as_iso_8601_in_utc(stock: Stock) -> None:
    shown = stock.client("GET", f"/calls/{stock.ended.id}").data["endedAt"]
    assert shown == iso(stock.ended.created_at + timedelta(seconds=30))
    assert datetime.fromisoformat(shown).utcoffset() == timedelta(0)
