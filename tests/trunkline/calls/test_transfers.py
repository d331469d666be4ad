"""Transfers of calls by the server, with the default voice and recognizer: by a bridged child call, with a briefing,
and by REFER."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio
import soxr

from media.audio_port import Samples
from media.background.loop_synthesis import SAMPLE_RATE
from media.hold_music.pieces import PIECES
from tests.peers.baresip import Baresip
from tests.sipcore.tones import loudest_hz, tone
from tests.trunkline.callees import TargetCall, TrunkPhone, trunk_phone
from tests.trunkline.caller_speech import words
from tests.trunkline.phone_calls import real
from tests.trunkline.recording_analysis import audible, read_wav, share_heard
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.transferred_calls import (
    CALLER_HZ,
    PACKETS_PER_S,
    TARGET,
    TARGET_HZ,
    assert_they_hear_each_other,
    call_with_target,
    hears_music,
    notify,
    share_of,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
RATE = 8000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with open_local_server(tmp_path_factory.mktemp("server"), real) as local_server:
        yield local_server


@pytest_asyncio.fixture(loop_scope="module")
async def phone(local_server: LocalServer) -> AsyncIterator[TrunkPhone]:
    """The target's phone."""
    async with trunk_phone(local_server.target) as phone:
        yield phone


def hz_after_start(side: Samples, rate: int) -> float:
    """The frequency of the second before the last half second of audible sound."""
    loud = np.flatnonzero(audible(side, rate))
    end = (loud[-1] - 25) * rate // PACKETS_PER_S
    return loudest_hz(side[end - rate : end], rate)


async def assert_recordings(local_server: LocalServer, call_id: str, child_id: str) -> None:
    """Assert that both recordings have both tones: on the left that of the call's own peer."""
    for recorded, expected in ((call_id, (CALLER_HZ, TARGET_HZ)), (child_id, (TARGET_HZ, CALLER_HZ))):
        rate, sides = read_wav(await local_server.client.recording(recorded))
        heard = [hz_after_start(sides[:, side], rate) for side in (0, 1)]
        assert heard == pytest.approx(expected, abs=5), recorded


async def test_a_cold_transfer_connects_the_caller_with_the_target(
    local_server: LocalServer, phone: TrunkPhone
) -> None:
    async with call_with_target(local_server, phone.port, mode="cold") as call:
        started = await call.transfer(reason="A fault")
        assert started["transferStatus"] == "initiated"
        callee = await phone.called()
        assert callee.number == TARGET
        callee.ring()
        await hears_music(call.caller)
        async with TargetCall(callee) as target:
            await call.event("transfer.connected")
            assert (await call.shown())["transferStatus"] == "connected"
            await assert_they_hear_each_other(call.caller, target)
            await target.hang_up()
            await call.caller.hung_up()
    ended = await call.stored()
    assert (ended["status"], ended["endedReason"]) == ("completed", "transferred")
    (transfer,) = ended["transferCalls"]
    assert (transfer["id"], transfer["transferType"], transfer["transferStatus"]) == (
        started["id"],
        "cold",
        "completed",
    )
    assert (transfer["reason"], transfer["requestedBy"], transfer["customerNumber"]) == ("A fault", "api", TARGET)
    assert [(each["sipStatus"], each["outcome"]) for each in transfer["attempts"]] == [(200, "answered")]
    assert transfer["connectedAt"] is not None
    assert transfer["endedAt"] is not None
    child = await local_server.ended(transfer["id"])
    assert (child["parentCallId"], child["direction"], child["status"], child["endedReason"]) == (
        call.call_id, "outbound", "completed", "customer_ended",
    )  # fmt: skip
    assert child["calledNumber"] == TARGET
    await assert_recordings(local_server, call.call_id, child["id"])


async def test_an_agent_that_stays_on_the_call_transcribes_both_until_one_tells_it_to_stop(
    local_server: LocalServer, phone: TrunkPhone
) -> None:
    question, answer, stop = "what are your opening hours", "we are open from nine to five", "please stop listening"
    async with call_with_target(local_server, phone.port, mode="cold", stayOnCall=True) as call:
        started = await call.transfer()
        async with TargetCall(await phone.called()) as target:
            await call.event("transcription.started", call_id=call.call_id)
            talk = ((call.caller, question, "slt"), (target, answer, "rms"), (call.caller, stop, "slt"))
            for number, (party, text, voice) in enumerate(talk, 1):
                party.say(words(text, voice))
                await local_server.log.events_of("transcription.utterance", number, call_id=call.call_id)
            ended = await call.event("transcription.ended", call_id=call.call_id)
            assert (ended["reason"], ended["utterances"]) == ("caller", 3)
            await assert_they_hear_each_other(call.caller, target)
            await target.hang_up()
            await call.caller.hung_up()
    stored = await call.stored()
    said = [(item["speaker"], item["content"]) for item in stored["transcript"] if "speaker" in item]
    assert [speaker for speaker, _ in said] == ["caller", "target", "caller"]
    assert share_heard(question, said[0][1]) >= 0.8
    assert share_heard(answer, said[1][1]) >= 0.8
    assert said[2][1] == stop
    assert stored["endedReason"] == "transferred"
    assert (await local_server.ended(started["id"]))["transcript"] == []
    turns = await local_server.client.v1("GET", f"calls/{call.call_id}/timeline")
    assert [turn["transcriptionEnded"] for turn in turns["turns"] if turn["speaker"]] == [None, None, "caller"]


async def test_the_callers_hang_up_ends_the_targets_call(local_server: LocalServer, phone: TrunkPhone) -> None:
    async with call_with_target(local_server, phone.port, mode="cold") as call:
        await call.transfer()
        async with TargetCall(await phone.called()) as target:
            await call.event("transfer.connected")
            await call.caller.hang_up()
            await target.hung_up()
    ended = await call.stored()
    assert (ended["endedReason"], ended["transferStatus"]) == ("customer_ended", "completed")


async def test_the_callers_hang_up_cancels_the_targets_ringing(local_server: LocalServer, phone: TrunkPhone) -> None:
    async with call_with_target(local_server, phone.port, mode="cold") as call:
        await call.transfer()
        callee = await phone.called()
        callee.ring()
        await call.caller.hang_up()
        await callee.expect_cancel()
    ended = await call.stored()
    assert (ended["endedReason"], ended["transferStatus"]) == ("customer_ended", "cancelled")


async def test_a_busy_target_leads_back_to_the_agent(local_server: LocalServer, phone: TrunkPhone) -> None:
    async with call_with_target(local_server, phone.port, mode="cold") as call:
        await call.transfer()
        callee = await phone.called()
        callee.ring()
        await call.caller.hears(25)
        callee.reject("486 Busy Here")
        await call.agent_goes_on()
        await call.caller.hang_up()
    ended = await call.stored()
    assert (ended["endedReason"], ended["transferStatus"]) == ("customer_ended", "busy")
    assert ended["transferCalls"][0]["sipStatus"] == 486
    told = ended["transcript"][-1]
    assert (told["role"], "the line is busy" in told["content"]) == ("assistant", True)


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_redirect_by_the_target_is_followed_where_the_number_allows_it(
    local_server: LocalServer, phone: TrunkPhone, allowed: bool
) -> None:
    number = {"sipAllowRedirect": allowed}
    async with call_with_target(local_server, phone.port, mode="cold", number_fields=number) as call:
        started = await call.transfer()
        first = await phone.called()
        first.reject("302 Moved Temporarily", f"Contact: <sip:556@127.0.0.1:{phone.port}>")
        if allowed:
            callee = await phone.called()
            assert (callee.number, callee.dialog.call_id) == ("556", first.dialog.call_id)
            async with TargetCall(callee) as target:
                await call.event("transfer.connected")
                await assert_they_hear_each_other(call.caller, target)
                await target.hang_up()
                await call.caller.hung_up()
        else:
            await call.agent_goes_on()
            await call.caller.hang_up()
    ended = await call.stored()
    child = await local_server.ended(started["id"])
    messages = (await local_server.client.v1("GET", f"calls/{child['id']}/sip"))["messages"]
    summaries = [each["summary"] for each in messages]
    assert [each.split()[0] for each in summaries].count("INVITE") == (2 if allowed else 1)
    assert (summaries[0].split()[0], "302" in " ".join(summaries)) == ("INVITE", True)
    assert any(each.startswith("BYE") for each in summaries) == allowed
    seen = (ended["transferStatus"], ended["transferCalls"][0]["attempts"][0]["sipStatus"], child["endedReason"])
    assert seen == (("completed", 200, "customer_ended") if allowed else ("failed", 302, "unreachable"))


@pytest.mark.parametrize("mode", ["cold", "warm_briefing"])
async def test_a_mailbox_leads_back_to_the_agent(local_server: LocalServer, phone: TrunkPhone, mode: str) -> None:
    async with call_with_target(local_server, phone.port, mode=mode, languageHint="en") as call:
        started = await call.transfer()
        async with TargetCall(await phone.called()) as target:
            target.say(words("I am not available right now. Please leave a message after the tone."))
            await target.hung_up()
        await call.agent_goes_on()
        await call.caller.hang_up()
    ended = await call.stored()
    assert (ended["endedReason"], ended["transferStatus"]) == ("customer_ended", "voicemail")
    told = ended["transcript"][-1]
    assert (told["role"], "mailbox" in told["content"]) == ("assistant", True)
    child = await local_server.ended(started["id"])
    assert (child["status"], child["endedReason"]) == ("completed", "voicemail")
    timeline = await local_server.client.v1("GET", f"calls/{started['id']}/timeline")
    assert timeline["answerVerdicts"][-1]["kind"] == "voicemail"


async def test_a_cold_target_who_says_hello_is_connected_at_the_verdict(
    local_server: LocalServer, phone: TrunkPhone
) -> None:
    async with call_with_target(local_server, phone.port, mode="cold", languageHint="en") as call:
        started = await call.transfer()
        async with TargetCall(await phone.called()) as target:
            target.say(words("hello"))
            verdict = await call.event("call.answer_verdict", call_id=started["id"])
            assert verdict["kind"] == "human"
            await call.event("transfer.connected")
            await assert_they_hear_each_other(call.caller, target)
            await target.hang_up()
            await call.caller.hung_up()


async def test_a_person_behind_the_music_of_a_queue_is_briefed(local_server: LocalServer, phone: TrunkPhone) -> None:
    music = soxr.resample(PIECES[0].render(), SAMPLE_RATE, RATE)
    async with call_with_target(local_server, phone.port, mode="warm_briefing", languageHint="en") as call:
        started = await call.transfer()
        async with TargetCall(await phone.called()) as target:
            target.say(music[: 6 * RATE])
            verdict = await call.event("call.answer_verdict", call_id=started["id"])
            assert (verdict["kind"], verdict["rule"]) == ("hold_queue", "music")
            await target.has_said()
            assert not audible(target.sound(), RATE).any(), "nobody is spoken to in a queue"
            target.say(words("hello"))
            await call.event("call.answer_verdict", call_id=started["id"], kind="human")
            await target.hears(100)
            assert audible(target.sound(), RATE).any(), "the briefing"
            target.press("1")
            await call.event("transfer.connected")
            await assert_they_hear_each_other(call.caller, target)
            await target.hang_up()
            await call.caller.hung_up()
    assert (await call.stored())["transferStatus"] == "completed"


async def test_a_briefed_target_takes_the_call_by_key_1(local_server: LocalServer, phone: TrunkPhone) -> None:
    async with call_with_target(local_server, phone.port, mode="warm_briefing") as call:
        started = await call.transfer(reason="A broken lamp")
        async with TargetCall(await phone.called()) as target:
            target.say(words("hello"))
            await target.has_said()
            await target.hears(250)
            assert (await call.shown())["transferStatus"] == "briefing"
            target.press("1")
            await call.event("transfer.connected")
            await assert_they_hear_each_other(call.caller, target)
            await target.hang_up()
            await call.caller.hung_up()
    ended = await call.stored()
    assert (ended["endedReason"], ended["transferStatus"]) == ("transferred", "completed")
    child = await local_server.ended(started["id"])
    briefing, key = child["transcript"][-2:]
    assert (briefing["role"], key["content"]) == ("assistant", "1")
    assert briefing["content"].startswith("Hello, this is an automatic assistant")
    await assert_recordings(local_server, call.call_id, child["id"])


async def test_a_briefed_target_declines_by_key_2(local_server: LocalServer, phone: TrunkPhone) -> None:
    async with call_with_target(local_server, phone.port, mode="warm_briefing") as call:
        started = await call.transfer(reason="A broken lamp")
        async with TargetCall(await phone.called()) as target:
            target.say(words("hello"))
            await target.has_said()
            await target.hears(250)
            assert audible(target.sound(), 8000).any(), "the briefing"
            target.press("2")
            await target.hung_up()
        await call.agent_goes_on()
        await call.caller.hears(25)
        assert (await call.shown())["transferStatus"] == "declined"
        await call.caller.hang_up()
    ended = await call.stored()
    assert (ended["endedReason"], ended["transferStatus"]) == ("customer_ended", "declined")
    assert (await local_server.ended(started["id"]))["endedReason"] == "agent_ended"


async def test_an_announced_target_is_connected_without_a_decision(
    local_server: LocalServer, phone: TrunkPhone
) -> None:
    async with call_with_target(local_server, phone.port, mode="warm_announce") as call:
        started = await call.transfer(reason="A broken lamp")
        async with TargetCall(await phone.called()) as target:
            target.say(words("hello"))
            await target.has_said()
            heard_before = len(call.caller.packets)
            await call.event("transfer.connected")
            assert audible(target.sound(), RATE).any(), "the announcement"
            assert audible(call.caller.sound(heard_before), RATE).mean() > 0.5, "hold music meanwhile"
            await assert_they_hear_each_other(call.caller, target)
            await target.hang_up()
            await call.caller.hung_up()
    ended = await call.stored()
    assert (ended["endedReason"], ended["transferStatus"]) == ("transferred", "completed")
    announced = (await local_server.ended(started["id"]))["transcript"][-1]
    assert (announced["role"], "A broken lamp" in announced["content"]) == ("assistant", True)
    assert "Will you take the call" not in announced["content"]


async def test_the_peer_takes_a_cold_transfer_by_refer(local_server: LocalServer, phone: TrunkPhone) -> None:
    async with call_with_target(local_server, phone.port, mode="cold", method="auto") as call:
        started = await call.transfer()
        raw = call.caller.phone
        request = await raw.next_request("REFER")
        assert re.match(rf"<sip:{TARGET}@", request.header("Refer-To"))
        raw.reply(request, "202 Accepted")
        for body, state in (
            ("SIP/2.0 100 Trying", "active;expires=60"),
            ("SIP/2.0 200 OK", "terminated;reason=noresource"),
        ):
            assert await notify(raw, call, body, state) == 200
        await call.caller.hung_up()
    ended = await call.stored()
    assert (ended["status"], ended["endedReason"]) == ("completed", "transferred")
    (transfer,) = ended["transferCalls"]
    assert (transfer["id"], transfer["transferStatus"], transfer["sipStatus"]) == (started["id"], "completed", 200)
    assert [(each["sipStatus"], each["outcome"]) for each in transfer["attempts"]] == [(200, "completed")]
    assert (transfer["recordingUrl"], transfer["answeredAt"]) == (None, None)


async def test_a_refused_refer_is_followed_by_a_bridged_call(local_server: LocalServer, phone: TrunkPhone) -> None:
    async with call_with_target(local_server, phone.port, mode="cold", method="auto") as call:
        await call.transfer()
        raw = call.caller.phone
        raw.reply(await raw.next_request("REFER"), "405 Method Not Allowed")
        async with TargetCall(await phone.called()) as target:
            await call.event("transfer.connected")
            await assert_they_hear_each_other(call.caller, target)
            await target.hang_up()
            await call.caller.hung_up()
    ended = await call.stored()
    outcomes = [(each["sipStatus"], each["outcome"]) for each in ended["transferCalls"][0]["attempts"]]
    assert (ended["endedReason"], outcomes) == ("transferred", [(405, "refused"), (200, "answered")])


async def test_a_pcmu_caller_and_a_g722_target_hear_each_other_and_music_on_hold(local_server: LocalServer) -> None:
    async with Baresip("G722/16000/1", user=TARGET) as baresip:
        async with call_with_target(local_server, baresip.port, mode="cold") as call:
            started = await call.transfer()
            answered = await call.event("call.answered", call_id=started["id"])
            assert (answered["codec"], answered["rate"]) == ("G722", 16000)
            await call.event("transfer.connected")
            call.caller.say(tone(8000, CALLER_HZ, 3))
            await call.caller.hears(75)
            assert loudest_hz(await call.caller.hears(50), 8000) == pytest.approx(TARGET_HZ, abs=5)
            await baresip.command("hold")
            await call.event("call.held", call_id=started["id"], by="peer")
            music = await hears_music(call.caller)
            assert share_of(TARGET_HZ, music) < 0.5, "the agent's music"
            await baresip.command("resume")
            await call.event("call.resumed", call_id=started["id"], by="peer")
            await call.caller.hears(50)
            assert share_of(TARGET_HZ, await call.caller.hears(25)) > 0.9
            call.caller.say(tone(8000, CALLER_HZ, 3))
            await call.caller.has_said()
            await baresip.command("hangup")
            await call.caller.hung_up()
        rate, heard = await baresip.received_audio()
    assert rate == 16000
    assert hz_after_start(heard, rate) == pytest.approx(CALLER_HZ, abs=5)
    ended = await call.stored()
    assert (ended["endedReason"], ended["transferStatus"]) == ("transferred", "completed")
    await assert_recordings(local_server, call.call_id, started["id"])
