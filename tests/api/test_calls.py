"""`/v1/calls`, recordings and transcripts."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit
from uuid import uuid4

import pytest
import sqlalchemy as sa

from config.clock import iso, utc_now
from config.links import signed_url
from storage import calls, recordings
from storage.calls import Call
from tests.api.conftest import Api, StartApi

SOUND = bytes(range(256)) * 4
TALK: list[calls.TranscriptItem] = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
LIST_FIELDS = {
    *("id", "organizationId", "agentId", "phoneNumberId", "callSid", "provider", "direction", "status"),
    *("customerNumber", "durationSeconds", "recordingUrl", "turnCount", "endedReason", "contextVariables", "metadata"),
    *("parentCallId", "transferType", "transferStatus", "transferCalls", "startedAt", "endedAt", "createdAt"),
}


async def _live(api: Api, **changes: Any) -> Call:
    facts: dict[str, Any] = {
        "organization_id": api.organization_id,
        "agent_id": str(uuid4()),
        "phone_number_id": str(uuid4()),
        "provider": "sip",
        "call_sid": "abc@pbx",
        "customer_number": "+41441234567",
        "metadata": {"order": 7},
    }
    return await api.services.database.write(lambda conn: calls.create_inbound(conn, **{**facts, **changes}))


async def _ended(api: Api, *, recording: bool = True, cost: float | None = None) -> Call:
    call = await _live(api)

    def end(conn: sa.Connection) -> Call | None:
        calls.answered(conn, call.id, call.created_at)
        return calls.finish(
            conn,
            call.id,
            status="completed",
            ended_reason="agent_ended",
            ended_at=call.created_at + timedelta(seconds=30),
            transcript=TALK,
            recording=recording,
            turn_count=1,
            analysis={"summary": "A greeting", "extractions": {"ok": True}},
            cost=cost,
        )

    ended = await api.services.database.write(end)
    assert ended is not None
    if recording:
        path = recordings.path_of(api.services.settings.data_dir, call.id, call.created_at)
        _write(path, SOUND)
    return ended


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


async def test_a_call_has_its_talk_in_detail_and_not_in_a_list(api: Api) -> None:
    stored = await _ended(api)
    status, answer = await api("GET", f"/calls/{stored.id}")
    call = answer["data"]
    assert (status, set(call)) == (200, LIST_FIELDS | {"transcript", "analysis"})
    assert call["transcript"] == TALK
    assert call["analysis"] == {"summary": "A greeting", "extractions": {"ok": True}}
    assert (call["durationSeconds"], call["callSid"], call["metadata"]) == (30, "abc@pbx", {"order": 7})
    assert (call["startedAt"], call["endedReason"]) == (iso(stored.created_at), "agent_ended")
    _, answer = await api("GET", "/calls")
    assert answer["data"] == [{name: value for name, value in call.items() if name in LIST_FIELDS}]


async def test_a_live_call_has_nulls_where_nothing_is_known_yet(api: Api) -> None:
    call = await _live(api)
    _, answer = await api("GET", f"/calls/{call.id}")
    unknown = {name for name, value in answer["data"].items() if value is None}
    assert unknown == {
        *("durationSeconds", "recordingUrl", "endedReason", "parentCallId", "transferType", "transferStatus"),
        *("startedAt", "endedAt", "analysis"),
    }
    assert answer["data"]["transcript"] == []


async def test_a_cost_is_only_there_when_there_is_one(api: Api) -> None:
    free, paid = await _ended(api), await _ended(api, cost=0.25)
    _, answer = await api("GET", "/calls")
    assert {each["id"]: each.get("cost", "absent") for each in answer["data"]} == {free.id: "absent", paid.id: 0.25}


async def test_calls_are_narrowed_by_every_filter(api: Api) -> None:
    live, ended = await _live(api), await _ended(api)
    cases = [
        ("", {live.id, ended.id}),
        (f"agentId={live.agent_id}", {live.id}),
        (f"agentId={str(live.agent_id).upper()}", {live.id}),
        (f"agentId={uuid4()}", set()),
        ("status=completed", {ended.id}),
        ("status=ringing&direction=inbound", {live.id}),
        ("direction=outbound", set()),
        (urlencode({"from": iso(live.created_at), "to": iso(ended.created_at)}), {live.id, ended.id}),
        (urlencode({"to": iso(live.created_at - timedelta(milliseconds=1))}), set()),
        ("from=2020-01-01", {live.id, ended.id}),
        (urlencode({"from": "2099-01-01T00:00:00+02:00"}), set()),
        ("unheardOf=1", {live.id, ended.id}),
    ]
    for query, expected in cases:
        status, answer = await api("GET", f"/calls?{query}")
        assert (status, {each["id"] for each in answer["data"]}) == (200, expected), query
        assert answer["pagination"]["total"] == len(expected)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("agentId=x", "agentId"),
        ("agentId=", "agentId"),
        ("status=done", "status"),
        ("status=", "status"),
        ("direction=INBOUND", "direction"),
        ("from=yesterday", "from"),
        ("to=1700000000", "to"),
        ("to=2026-13-01T00:00:00Z", "to"),
        ("from=0001-01-01T00:00:00%2B14:00", "from"),
        ("status=queued&status=ringing", "status"),
    ],
)
async def test_a_malformed_filter_is_named(api: Api, query: str, field: str) -> None:
    status, answer = await api("GET", f"/calls?{query}")
    assert (status, answer["error"]) == (400, "Validation failed")
    assert [each["field"] for each in answer["details"]] == [field]


@pytest.mark.parametrize("path", ["/agents", "/phone-numbers", "/calls", "/voices", "/slm-models"])
async def test_paging_out_of_range_is_named_and_never_clamped(api: Api, path: str) -> None:
    bad = {
        "limit": ("0", "101", "-1", "x", "", "1.0", "1_0", "+1", " 1", "1e1", "٣"),
        "offset": ("-1", "x", "", "9" * 30),
    }
    for field, values in bad.items():
        for value in values:
            status, answer = await api("GET", path, params={field: value})
            assert (status, [each["field"] for each in answer["details"]]) == (400, [field]), value
    for limit, offset in ((1, 0), (100, 0), (50, 2**63 - 1)):
        status, answer = await api("GET", path, params={"limit": limit, "offset": offset})
        assert status == 200
        assert (answer["pagination"]["limit"], answer["pagination"]["offset"]) == (limit, offset)


async def test_a_recording_opens_with_the_key_and_with_its_link_alone(api: Api) -> None:
    call = await _ended(api)
    response = await api.raw("GET", f"/calls/{call.id}/recording")
    assert (response.status, response.content_type, await response.read()) == (200, "audio/wav", SOUND)
    _, answer = await api("GET", f"/calls/{call.id}")
    link = answer["data"]["recordingUrl"]
    assert link.startswith(str(api.client.make_url("/")))
    async with api.client.session.get(link) as response:
        assert (response.status, await response.read()) == (200, SOUND)


@pytest.mark.parametrize(
    ("wanted", "status", "content"),
    [
        ("bytes=0-9", 206, SOUND[:10]),
        ("bytes=1000-", 206, SOUND[1000:]),
        ("bytes=-24", 206, SOUND[-24:]),
        ("bytes=1020-9999", 206, SOUND[1020:]),
        ("bytes=1024-", 416, None),
        ("bytes=5-2", 416, None),
        ("bytes=x", 416, None),
    ],
)
async def test_a_recording_is_served_in_ranges(api: Api, wanted: str, status: int, content: bytes | None) -> None:
    call = await _ended(api)
    response = await api.raw("GET", f"/calls/{call.id}/recording", headers={"Range": wanted})
    assert response.status == status
    if content is None:
        assert response.headers["Content-Range"] == "bytes */1024"
        assert "error" in await response.json()
    else:
        assert await response.read() == content
        assert response.headers["Content-Range"].endswith("/1024")


async def test_a_head_tells_the_size(api: Api) -> None:
    call = await _ended(api)
    response = await api.raw("HEAD", f"/calls/{call.id}/recording")
    assert (response.status, response.headers["Content-Length"]) == (200, "1024")
    assert response.headers["Accept-Ranges"] == "bytes"


async def test_a_link_that_was_changed_or_is_over_opens_nothing(api: Api) -> None:
    call, other = await _ended(api), await _ended(api)
    _, answer = await api("GET", f"/calls/{call.id}")
    parts = urlsplit(answer["data"]["recordingUrl"])
    given = {name: values[0] for name, values in parse_qs(parts.query).items()}
    changed = [
        (parts.path.replace(call.id, other.id), given),
        (parts.path.replace("recording", "transcript"), given),
        (parts.path, {**given, "expires": str(int(given["expires"]) + 1)}),
        (parts.path, {**given, "signature": given["signature"][:-1]}),
        (parts.path, {**given, "signature": "é"}),
        (parts.path, {"signature": given["signature"]}),
        (parts.path, {"expires": given["expires"]}),
        (parts.path, {**given, "expires": "9" * 40}),
        (f"/v1/calls/{call.id}", given),
    ]
    for path, query in changed:
        async with api.client.get(path, params=query) as response:
            assert (response.status, await response.json()) == (401, {"error": "Invalid API key"}), (path, query)
    old = signed_url(api.services.secrets, "", parts.path, utc_now() - timedelta(days=9))
    async with api.client.get(old) as response:
        assert response.status == 401


async def test_the_public_address_of_the_settings_is_used_in_links(start_api: StartApi) -> None:
    api = await start_api({"api": {"public_url": "https://voice.example:8443/"}})
    call = await _ended(api)
    _, answer = await api("GET", "/calls")
    assert answer["data"][0]["recordingUrl"].startswith(f"https://voice.example:8443/v1/calls/{call.id}/recording?")


@pytest.mark.parametrize("host", ["x:99999", "x:y", ":80"])
async def test_a_host_that_no_link_can_lead_to_is_refused(api: Api, host: str) -> None:
    call = await _ended(api)
    for path in ("/calls", f"/calls/{call.id}"):
        status, answer = await api("GET", path, headers={"Host": host})
        assert (status, [each["field"] for each in answer["details"]]) == (400, ["Host"]), answer


async def test_a_call_without_a_recording_has_none(api: Api) -> None:
    silent, live, lost = await _ended(api, recording=False), await _live(api), await _ended(api)
    recordings.path_of(api.services.settings.data_dir, lost.id, lost.created_at).unlink()
    for call in (silent, live, lost):
        assert await api("GET", f"/calls/{call.id}/recording") == (404, {"error": "Recording not found"})


async def test_a_transcript_opens_with_the_key_and_with_a_link(api: Api) -> None:
    call = await _ended(api)
    expected = {"data": {"callId": call.id, "status": "completed", "transcript": TALK}}
    assert await api("GET", f"/calls/{call.id}/transcript") == (200, expected)
    link = signed_url(api.services.secrets, "", f"/v1/calls/{call.id}/transcript", utc_now())
    async with api.client.get(link) as response:
        assert (response.status, await response.json()) == (200, expected)
