"""Recordings and transcripts of `/v1/calls`, and their signed links."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest
import sqlalchemy as sa

from config.clock import utc_now
from config.signed_links import signed_url
from storage.calls import calls, recordings
from storage.calls.calls import Call, TranscriptItem
from tests.api.auth.test_user_sessions import signed_in
from tests.api.conftest import Api, StartApi

SOUND = bytes(range(256)) * 4
TALK: list[calls.TranscriptItem] = [
    {"role": "user", "content": "Hi", "startMs": 1000, "endMs": 1500},
    {"role": "assistant", "content": "Hello", "startMs": 2400, "endMs": 3000},
]
LOOKED_UP = {
    "name": "look_up",
    "start_ms": 1600,
    "end_ms": 2250,
    "ok": True,
    "arguments": {"order": 17},
    "result": "shipped",
}
BROKE = {"name": "book", "start_ms": 2500, "end_ms": 2600, "ok": False, "arguments": None, "result": "No answer."}
TOOL_ITEMS = [
    {
        "role": "tool",
        "name": "look_up",
        "arguments": {"order": 17},
        "ok": True,
        "result": "shipped",
        "error": None,
        "startMs": 1600,
        "endMs": 2250,
        "durationMs": 650,
    },
    {
        "role": "tool",
        "name": "book",
        "arguments": None,
        "ok": False,
        "result": None,
        "error": "No answer.",
        "startMs": 2500,
        "endMs": 2600,
        "durationMs": 100,
    },
]


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


async def _ended(api: Api, *, recording: bool = True) -> Call:
    call = await _live(api)

    def end(conn: sa.Connection) -> Call | None:
        calls.mark_answered(conn, call.id, call.created_at)
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


async def test_a_recording_can_be_read_with_the_key_and_with_its_link(api: Api) -> None:
    call = await _ended(api)
    response = await api.raw("GET", f"/calls/{call.id}/recording")
    assert (response.status, response.content_type, await response.read()) == (200, "audio/wav", SOUND)
    _, answer = await api("GET", f"/calls/{call.id}")
    link = answer["data"]["recordingUrl"]
    assert link.startswith(str(api.client.make_url("/")))
    async with api.client.session.get(link) as response:
        assert (response.status, await response.read()) == (200, SOUND)


async def test_the_link_that_a_user_gets_ends_with_the_session(api: Api) -> None:
    call = await _ended(api)
    viewer = await signed_in(api, "viewer")
    _, answer = await viewer("GET", f"/v1/calls/{call.id}")
    _, listed = await viewer("GET", "/v1/calls")
    path = f"/v1/calls/{call.id}/recording"
    for data in (answer["data"], listed["data"][0]):
        assert data["recordingUrl"] == str(api.client.make_url(path))
    assert (await viewer("GET", path))[0] == 200
    await viewer("DELETE", "/api/session")
    assert (await viewer("GET", path))[0] == 401


@pytest.mark.parametrize(
    ("range_header", "status", "content"),
    [
        ("bytes=0-9", 206, SOUND[:10]),
        ("bytes=1000-", 206, SOUND[1000:]),
        ("bytes=-24", 206, SOUND[-24:]),
        ("bytes=1020-9999", 206, SOUND[1020:]),
        ("BYTES=0-0", 206, SOUND[:1]),
        ("bytes=-9999", 206, SOUND),
        (f"bytes={'0' * 99}1-{'9' * 5000}", 206, SOUND[1:]),
        ("bytes=1024-", 416, None),
        (f"bytes={'9' * 5000}-", 416, None),
        ("bytes=-0", 416, None),
    ],
    ids=lambda each: f"{each!r:.20}",
)
async def test_a_recording_is_served_in_ranges(api: Api, range_header: str, status: int, content: bytes | None) -> None:
    call = await _ended(api)
    response = await api.raw("GET", f"/calls/{call.id}/recording", headers={"Range": range_header})
    assert response.status == status
    if content is None:
        assert response.headers["Content-Range"] == "bytes */1024"
        assert "error" in await response.json()
    else:
        assert await response.read() == content
        assert response.headers["Content-Range"].endswith("/1024")


@pytest.mark.parametrize(
    "range_header",
    [
        "items=0-1",
        "bytes=0-1,4-5",
        "bytes=-1, 2000-",
        "bytes=5-2",
        "bytes=x",
        "bytes=",
        "bytes=-",
        "bytes 0-1",
        "",
        "²",
    ],
)
async def test_anything_but_a_single_byte_range_gets_the_complete_recording(api: Api, range_header: str) -> None:
    call = await _ended(api)
    response = await api.raw("GET", f"/calls/{call.id}/recording", headers={"Range": range_header})
    assert (response.status, await response.read()) == (200, SOUND)
    assert "Content-Range" not in response.headers


async def test_head_of_a_recording_ignores_ranges(api: Api) -> None:
    call = await _ended(api)
    for range_header in ("bytes=0-1", "bytes=1024-"):
        response = await api.raw("HEAD", f"/calls/{call.id}/recording", headers={"Range": range_header})
        assert (response.status, response.headers["Content-Length"]) == (200, "1024")


async def test_head_of_a_recording_has_its_size(api: Api) -> None:
    call = await _ended(api)
    response = await api.raw("HEAD", f"/calls/{call.id}/recording")
    assert (response.status, response.headers["Content-Length"]) == (200, "1024")
    assert response.headers["Accept-Ranges"] == "bytes"


@pytest.mark.parametrize("what", ["recording", "transcript"])
async def test_a_link_works_with_any_key_beside_it(api: Api, what: str) -> None:
    call = await _ended(api)
    other = await api.as_another_organization()
    link = signed_url(api.services.secrets, "", f"/v1/calls/{call.id}/{what}", utc_now()).removeprefix("/v1")
    for client in (api, other, replace(api, key="tk_00000000_x")):
        assert (await client.raw("GET", link)).status == 200
    unsigned = await other.raw("GET", f"/calls/{call.id}/{what}?expires=1&signature=x")
    assert unsigned.status == 404, "a bad signature adds nothing to the key"


async def test_a_changed_or_expired_link_is_rejected(api: Api) -> None:
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
        (parts.path, {**given, "expires": "9" * 40}),
    ]
    for path, query in changed:
        async with api.client.get(path, params=query) as response:
            answer = await response.json()
            assert (response.status, answer["error"]) == (401, "This link's signature does not match"), (path, query)
            assert [each["field"] for each in answer["details"]] == ["signature"]
    for path, query in ((parts.path, {"expires": given["expires"]}), (f"/v1/calls/{call.id}", given)):
        async with api.client.get(path, params=query) as response:
            assert (response.status, (await response.json())["error"]) == (401, "Invalid API key"), (path, query)


async def test_the_error_of_an_expired_link_says_that_it_has_expired(api: Api) -> None:
    call = await _ended(api)
    old = signed_url(api.services.secrets, "", f"/v1/calls/{call.id}/recording", utc_now() - timedelta(days=9))
    async with api.client.get(old) as response:
        answer = await response.json()
    assert (response.status, answer["error"]) == (401, "This link has expired")
    assert answer["details"] == [{"field": "expires", "message": "The link's time is over: ask for a new one"}]
    async with api.client.get(old[:-1]) as response:
        assert (await response.json())["error"] == "This link's signature does not match"


async def test_the_public_address_of_the_settings_is_used_in_links(start_api: StartApi) -> None:
    api = await start_api({"api": {"public_url": "https://voice.example:8443/"}})
    call = await _ended(api)
    _, answer = await api("GET", "/calls")
    assert answer["data"][0]["recordingUrl"].startswith(f"https://voice.example:8443/v1/calls/{call.id}/recording?")
    for host in ("evil.example", "a b", "voice.example"):
        for path in ("/calls", f"/calls/{call.id}"):
            text = await (await api.raw("GET", path, headers={"Host": host})).text()
            assert "https://voice.example:8443/v1/calls/" in text
            assert host not in text.replace("https://voice.example:8443/", "")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "host", ["x:99999", "x:y", ":80", "a b", "x/y", "x@y", "x?y", "a\tb", "x#", "é", "[::1", "1.2.3.400"]
)
async def test_a_malformed_host_header_is_rejected(module_api: Api, host: str) -> None:
    call = await _ended(module_api)
    for path in ("/calls", f"/calls/{call.id}"):
        status, answer = await module_api("GET", path, headers={"Host": host})
        assert (status, [each["field"] for each in answer["details"]]) == (400, ["Host"]), answer


@pytest.mark.parametrize(
    ("host", "origin"),
    [("Voice.example", "http://voice.example"), ("a_b:8080", "http://a_b:8080"), ("[::1]:8080", "http://[::1]:8080")],
)
async def test_a_link_has_the_host_of_the_request(api: Api, host: str, origin: str) -> None:
    call = await _ended(api)
    _, answer = await api("GET", f"/calls/{call.id}", headers={"Host": host})
    assert answer["data"]["recordingUrl"].startswith(f"{origin}/v1/calls/{call.id}/recording?")


async def test_a_call_without_a_recording_has_none(api: Api) -> None:
    silent, live, lost = await _ended(api, recording=False), await _live(api), await _ended(api)
    recordings.path_of(api.services.settings.data_dir, lost.id, lost.created_at).unlink()
    for call in (silent, live, lost):
        assert await api("GET", f"/calls/{call.id}/recording") == (404, {"error": "Recording not found"})


async def test_the_sip_end_of_a_call_is_in_the_call_and_in_no_list(api: Api) -> None:
    sip_end = {"statusCode": 480, "reasonPhrase": "Gone", "q850Cause": 20, "q850Text": None, "byPeer": True}
    call = await _live(api)
    shown = (await api("GET", f"/calls/{call.id}"))[1]["data"]
    assert shown["sipEnd"] is None
    ending: dict[str, Any] = {"status": "no_answer", "ended_reason": "no_answer", "ended_at": call.created_at}
    await api.services.database.write(lambda conn: calls.finish(conn, call.id, **ending, sip_end=sip_end))
    shown = (await api("GET", f"/calls/{call.id}"))[1]["data"]
    assert shown["sipEnd"] == sip_end
    assert "sipEnd" not in (await api("GET", "/calls"))[1]["data"][0]


async def test_the_media_quality_of_a_call_is_in_the_call_and_in_no_list(api: Api) -> None:
    figures = {"lost": 1, "lossPercent": 0.1, "jitterMs": 1.5, "maxJitterMs": 3.0, "mos": 4.4}
    counts = {"duplicate": 0, "reordered": 2, "foreign": 3, "malformed": 0, "discardedMs": 20}
    quality = {
        "codec": "PCMU",
        "received": {"packets": 999, **figures, **counts},
        "sent": {"packets": 1000, **figures},
        "roundTripMs": 12.5,
        "maxRoundTripMs": None,
    }
    call = await _live(api)
    assert (await api("GET", f"/calls/{call.id}"))[1]["data"]["mediaQuality"] is None
    ending: dict[str, Any] = {"status": "completed", "ended_reason": "customer_ended", "ended_at": call.created_at}
    await api.services.database.write(lambda conn: calls.finish(conn, call.id, **ending, media_quality=quality))
    assert (await api("GET", f"/calls/{call.id}"))[1]["data"]["mediaQuality"] == quality
    assert "mediaQuality" not in (await api("GET", "/calls"))[1]["data"][0]


async def test_a_transcript_can_be_read_with_the_key_and_with_a_link(api: Api) -> None:
    call = await _ended(api)
    expected = {"data": {"callId": call.id, "status": "completed", "transcript": TALK}}
    assert await api("GET", f"/calls/{call.id}/transcript") == (200, expected)
    link = signed_url(api.services.secrets, "", f"/v1/calls/{call.id}/transcript", utc_now())
    async with api.client.get(link) as response:
        assert (response.status, await response.json()) == (200, expected)


async def test_only_words_of_connected_parties_have_a_speaker(api: Api) -> None:
    call = await _live(api)
    target: TranscriptItem = {"role": "user", "content": "Sales, hello.", "speaker": "target", "startMs": 4, "endMs": 5}
    talk = [*TALK, target]
    await api.services.database.write(lambda conn: calls.store_progress(conn, call.id, transcript=talk, turn_count=1))
    for path in (f"/calls/{call.id}", f"/calls/{call.id}/transcript"):
        assert (await api("GET", path))[1]["data"]["transcript"] == talk


async def _with_tools(api: Api, talk: list[TranscriptItem]) -> Call:
    """A live call with a greeting and a turn, for whose response two tools were called."""
    call = await _live(api)
    timeline = [{"turn": 0}, {"turn": 1, "tools": [LOOKED_UP, BROKE]}, {"answer": "human"}]
    progress: dict[str, Any] = {"transcript": talk, "timeline": timeline, "turn_count": 1}
    await api.services.database.write(lambda conn: calls.store_progress(conn, call.id, **progress))
    return call


async def test_tool_calls_come_into_the_transcript_in_order_of_time_if_asked_for(api: Api) -> None:
    call = await _with_tools(api, TALK)
    path = f"/calls/{call.id}/transcript"
    assert (await api("GET", path))[1]["data"]["transcript"] == TALK
    shown = (await api("GET", f"{path}?include=tools"))[1]["data"]
    assert (shown["callId"], shown["status"]) == (call.id, "ringing")
    assert shown["transcript"] == [TALK[0], TOOL_ITEMS[0], TALK[1], TOOL_ITEMS[1]]
    assert (await api("GET", f"/calls/{call.id}"))[1]["data"]["transcript"] == TALK


async def test_words_have_the_times_of_the_models_or_else_by_their_lengths(api: Api) -> None:
    call = await _live(api)
    talk: list[TranscriptItem] = [
        {"role": "user", "content": "I need [number] berths", "startMs": 1000, "endMs": 3300},
        {"role": "assistant", "content": "Two it is.", "startMs": 4000, "endMs": 5000, "words": [0, 310, 480]},
        {"role": "user", "content": "Yes.", "startMs": 6000, "endMs": 6500, "words": [0, 100]},
        {"role": "user", "content": "No times."},
    ]
    await api.services.database.write(lambda conn: calls.store_progress(conn, call.id, transcript=talk, turn_count=1))
    path = f"/calls/{call.id}/transcript"
    timed = (await api("GET", f"{path}?include=words"))[1]["data"]["transcript"]
    assert [(each.get("wordStartsMs"), each.get("wordSource")) for each in timed] == [
        ([1000, 1200, 1700, 2600], "estimate"),
        ([4000, 4310, 4480], "model"),
        ([6000], "estimate"),
        (None, None),
    ]
    untimed = (await api("GET", path))[1]["data"]["transcript"]
    assert {name for each in untimed for name in each} == {"role", "content", "startMs", "endMs"}


async def test_tool_calls_of_earlier_versions_come_after_their_turn(api: Api) -> None:
    talk: list[TranscriptItem] = [
        {"role": "assistant", "content": "Good day."},
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": "On its way."},
        {"role": "user", "content": "Thanks."},
    ]
    call = await _with_tools(api, talk)
    _, answer = await api("GET", f"/calls/{call.id}/transcript?include=tools")
    shown = answer["data"]["transcript"]
    assert [each.get("content", each.get("name")) for each in shown] == [
        "Good day.",
        "Where is it?",
        "look_up",
        "book",
        "On its way.",
        "Thanks.",
    ]
    assert (shown[0]["startMs"], shown[0]["endMs"]) == (None, None)


@pytest.mark.parametrize("value", ["", "all", "tools,tools", "Tools"])
async def test_an_unknown_value_of_include_is_named(api: Api, value: str) -> None:
    call = await _ended(api)
    status, answer = await api("GET", f"/calls/{call.id}/transcript?include={value}")
    assert (status, [each["field"] for each in answer["details"]]) == (400, ["include"])


async def test_a_signed_link_does_not_open_the_tool_calls(api: Api) -> None:
    call = await _with_tools(api, TALK)
    link = signed_url(api.services.secrets, "", f"/v1/calls/{call.id}/transcript", utc_now())
    async with api.client.get(f"{link}&include=tools") as response:
        assert (response.status, (await response.json())["details"][0]["field"]) == (400, "include")
