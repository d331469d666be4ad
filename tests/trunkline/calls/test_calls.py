"""Calls of SIPp and baresip with a complete server: received audio and stored calls."""

from __future__ import annotations

import asyncio
import io
import json
from zipfile import ZipFile

import pytest

from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText
from tests.peers.baresip import Baresip
from tests.peers.sipp import Sipp
from tests.transcripts import without_times
from tests.trunkline.api_client import Client
from tests.trunkline.conftest import GREETING, Office
from tests.trunkline.recording_analysis import audible, heard_words, read_wav, share_heard
from tests.trunkline.sip_phone import calling, refusal

pytestmark = pytest.mark.asyncio(loop_scope="package")
HOLD = {"pt": "0", "codec": "PCMU/8000", "ptime": "20"}


async def test_sipp_calls_and_hangs_up(office: Office) -> None:
    since = office.server.log.mark()
    async with Sipp("call", office.server.target, call_ms=800, keys=HOLD) as sipp:
        await sipp.finished()
    ended = await office.server.event("call.ended", since=since)
    call = await office.client.call(ended["call_id"])
    assert (call["status"], call["endedReason"], call["direction"]) == ("completed", "customer_ended", "inbound")
    assert (call["customerNumber"], call["provider"], call["agentId"]) == ("sipp", "sip", office.agent_id)
    assert call["calledNumber"] == "100"
    assert call["durationSeconds"] in (0, 1)
    rate, sides = read_wav(await office.client.recording(call["id"]))
    assert rate == 8000
    assert len(sides) / rate == pytest.approx(0.8, abs=0.5)
    await _export_and_delete(office, call["id"])


async def _export_and_delete(office: Office, call_id: str) -> None:
    """Export and delete a call; check that its data and files are gone."""
    status, archive = await office.client.get(f"/v1/calls/{call_id}/export")
    with ZipFile(io.BytesIO(archive)) as files:
        assert (status, files.read("recording.wav")) == (200, await office.client.recording(call_id))
    since, folder = office.server.log.mark(), office.server.data_dir / "recordings"
    assert await asyncio.to_thread(lambda: list(folder.rglob(f"{call_id}.wav")))
    assert await office.client.status("DELETE", f"calls/{call_id}") == 200
    await office.server.event("retention.removed", since=since)
    assert not await asyncio.to_thread(lambda: list(folder.rglob(f"{call_id}.wav")))


async def test_ten_concurrent_calls_are_all_stored(office: Office) -> None:
    since = office.server.log.mark()
    async with Sipp("call", office.server.target, calls=10, rate=50, call_ms=1500, keys=HOLD) as sipp:
        answered = await office.server.log.events_of("call.answered", 10, since=since)
        assert not office.server.log.all("call.ended", since), "all ten live at once"
        await sipp.finished()
        assert sipp.statistics()["SuccessfulCall(C)"] == "10"
    await office.server.log.events_of("call.ended", 10, since=since, reason="customer_ended")
    calls = await office.client.v1("GET", "calls?limit=10")
    assert {call["id"] for call in calls} == {each["call_id"] for each in answered}
    assert {(call["status"], call["endedReason"]) for call in calls} == {("completed", "customer_ended")}
    assert len({call["callSid"] for call in calls}) == 10


@pytest.mark.parametrize(("number", "status"), [("999", 404), ("101", 480), ("102", 480)])
async def test_a_call_to_a_number_without_an_active_agent_is_rejected(office: Office, number: str, status: int) -> None:
    since = office.server.log.mark()
    assert (await refusal(office.server.target, number)).status == status
    event = await office.server.event("call.refused", since=since)
    assert (event["dialled"], event["code"]) == (number, status)


async def test_call_limits_reject_with_486_for_an_organization_and_503_for_the_server(office: Office) -> None:
    key = await office.server.key("narrow", max_calls=1)
    async with Client(office.server.origin, key, office.server.secrets) as narrow:
        await narrow.number("200", await narrow.agent())
    since = office.server.log.mark()
    async with calling(office.server.target, "200") as call:
        assert (await refusal(office.server.target, "200")).status == 486
        async with Sipp("call", office.server.target, calls=11, rate=100, call_ms=2500, keys=HOLD) as sipp:
            await office.server.log.events_of("call.answered", 12, since=since)
            full = await refusal(office.server.target, "100")
            assert (full.status, full.header("Retry-After")) == (503, "10")
            await call.hang_up()
            await sipp.finished()
    await office.server.log.events_of("call.ended", 12, since=since, reason="customer_ended")


@pytest.mark.parametrize("codec", ["PCMU/8000/1", "opus/48000/2"])
async def test_baresip_receives_the_greeting_and_its_tone_is_no_turn(
    office: Office, recognizer: PocketsphinxSpeechToText, codec: str
) -> None:
    since = office.server.log.mark()
    async with Baresip(codec) as phone:
        await phone.command("dial", f"sip:100@{office.server.target}")
        await phone.event("CALL_ESTABLISHED")
        answered = await office.server.event("call.answered", since=since)
        assert answered["codec"].lower() == codec.split("/")[0].lower()
        await office.server.event("turn.agent", call_id=answered["call_id"])
        await phone.command("hangup")
        await phone.event("CALL_CLOSED")
        rate, heard = await phone.received_audio()
    ended = await office.server.event("call.ended", call_id=answered["call_id"])
    assert (ended["reason"], ended["turns"], ended["recorded"]) == ("customer_ended", 0, True)
    call = await office.client.call(ended["call_id"])
    assert without_times(call["transcript"]) == [{"role": "assistant", "content": GREETING}]
    quality = call["mediaQuality"]
    assert (quality["codec"].lower(), quality["received"]["lost"]) == (answered["codec"].lower(), 0)
    assert quality["received"]["mos"] > 3
    assert audible(heard, rate).mean() > 0.4, "the greeting fills most of the call"
    if rate == 8000:
        words = " ".join(await heard_words(recognizer, heard, rate))
        assert share_heard(GREETING, words) >= 0.5, words
    else:
        rate, sides = read_wav(await office.client.recording(call["id"]))
        assert rate == 16000
        came = min(quality["received"]["packets"] * 0.02 * rate / len(sides), 1.0)  # a slow machine's phone sends less
        assert audible(sides[:, 0], rate).mean() > 0.9 * came, f"the tone is on the caller's side: {quality}"


async def test_the_rule_based_analyzer_writes_summary_and_extraction_without_a_language_model(office: Office) -> None:
    schema = [
        {"name": "menu choice", "description": "The number that was dialled in the menu", "type": "number"},
        {"name": "callback", "description": "Whether the caller wants to be called back", "type": "boolean"},
    ]
    agent_id = await office.client.agent(
        systemPrompt="You are a menu.",
        firstSpeaker="agent",
        agentGreeting="Your menu choice?",
        agentGreetingEnabled=True,
        postCallSummaryEnabled=True,
        postCallExtractionSchema=schema,
        postCallWebhookUrl=office.receiver.url,
    )
    await office.client.number("103", agent_id)
    since = office.server.log.mark()
    async with calling(office.server.target, "103") as phone:
        call_id = (await office.server.event("call.answered", since=since))["call_id"]
        await office.server.event("turn.agent", call_id=call_id)
        phone.press("42#")
        await office.server.event("turn.user", call_id=call_id)
        await phone.hang_up()
    await office.server.event("call.ended", since=since, call_id=call_id)
    call = await office.client.call(call_id)
    _, body = await office.receiver.about(call_id)
    assert call["analysis"] == {
        "summary": call["analysis"]["summary"],
        "extractions": {"menu choice": 42, "callback": None},
        "method": "extractive",
    }
    assert "Caller: 42" in call["analysis"]["summary"]
    assert json.loads(body)["extractedData"] == call["analysis"]["extractions"]
