"""An inbound call from ringing to its stored end."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from bench.turn.scripted_models import HANG_UP
from calls.session import live_transcript
from media.recording import WAV_HEADER_BYTES
from models.protocols import LlmOutput, TextDelta, VoiceSettings
from models.tts.flite.text_to_speech import FliteTextToSpeech
from storage.calls import calls, recordings
from tests.calls.call_service_harness import GREETS, CallServiceHarness, call_service, until
from tests.fakes.fake_leg import Phone
from tests.fakes.scripted_call import RATE, WORD_MS, settle
from tests.transcripts import without_times


async def eventually(harness: CallServiceHarness, condition: Callable[[calls.Call], bool]) -> None:
    """Poll the database until a stored call matches."""
    async with asyncio.timeout(10):
        while not any(condition(call) for call in await harness.all_calls()):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_a_call_is_stored_from_ringing_to_its_end(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        number, agent = await harness.create_number(**GREETS)
        phone = harness.invite(number="+4917012")
        await until(lambda: 200 in phone.sent)
        live = await harness.stored_call(phone)
        assert live.status in ("ringing", "in_progress")
        await until(lambda: harness.tts.spoken)
        await until(lambda: phone.leg.stats() and harness.pump.sent(phone.slot).any())
        phone.hangs_up()
        call = await harness.ended_call(phone)
    assert phone.sent == [180, 200]
    assert (call.status, call.ended_reason, call.direction) == ("completed", "customer_ended", "inbound")
    assert (call.agent_id, call.phone_number_id) == (agent.id, number.id)
    assert (call.customer_number, call.provider) == ("+4917012", "sip")
    assert call.started_at is not None
    assert call.ended_at is not None
    assert call.created_at <= call.started_at <= call.ended_at
    assert (call.context_variables, call.metadata, call.analysis) == ({}, {}, None)


async def test_a_caller_is_transcribed_answered_and_recorded(tmp_path: Path) -> None:
    flite = await asyncio.to_thread(FliteTextToSpeech)
    spoken = await flite.synthesize(
        "Hello, I would like to know your opening hours please.", VoiceSettings(flite.voices()[0], 1.0, 0.5, 8000)
    )
    answer: list[LlmOutput] = [TextDelta("We open at nine. Good bye."), HANG_UP]
    async with call_service(tmp_path, answer, hears=["what are your opening hours"]) as harness:
        await harness.create_number(turn_endpoint_delay=600)
        with capture_logs() as lines:
            phone = harness.invite(caller=spoken.samples)
            call = await harness.ended_call(phone)
        logged = [line for line in lines if line["log_level"] != "debug"]
        assert {"turn.user", "turn.agent", "call.ended"} <= {line["event"] for line in logged}
        assert not re.search("opening|nine", str(logged)), "words are logged at debug only"
        (stream,) = harness.stt.streams
        assert stream.closed
        assert len(stream.turns) == 1
        assert stream.turns[0] > len(spoken.samples) * 3 // 4
        path = recordings.path_of(tmp_path, call.id, call.created_at)
        assert path.stat().st_size > WAV_HEADER_BYTES + 4 * len(spoken.samples)
        assert harness.pump.released == [phone.slot]
    assert (call.status, call.ended_reason, call.turn_count) == ("completed", "agent_ended", 1)
    assert [(item["role"], item["content"]) for item in call.transcript] == [
        ("user", "what are your opening hours"),
        ("assistant", "We open at nine. Good bye."),
    ]
    assert call.recorded
    assert phone.sent == [180, 200, -1]


async def test_the_transcript_so_far_is_stored_during_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_transcript, "SHARED_PROGRESS_DELAY_S", live_transcript.PROGRESS_DELAY_S)
    async with call_service(tmp_path) as harness:
        await harness.create_number(**GREETS)
        phone = harness.invite()
        await until(lambda: 200 in phone.sent)
        await eventually(harness, lambda call: bool(call.transcript))
        call = await harness.stored_call(phone)
        assert (call.status, call.transcript[0]["content"]) == ("in_progress", "Welcome caller.")


async def test_placeholders_have_the_calls_values_without_context_variables(tmp_path: Path) -> None:
    greeting = "Hello {{customer_number}} on {{phone_number}} {{nobody}}."
    async with call_service(tmp_path) as harness:
        await harness.create_number(**{**GREETS, "agent_greeting": greeting})
        with capture_logs() as logs:
            phone = harness.invite(number="+4917012")
            await until(lambda: harness.tts.spoken)
        said = "plus four nine one, seven zero one two", "plus four nine three, zero one zero zero"
        assert harness.tts.spoken == [f"Hello {said[0]} on {said[1]}."]
        assert [entry["names"] for entry in logs if entry["event"] == "context.missing"] == [["nobody"]]
        assert (await harness.stored_call(phone)).context_variables == {}


async def test_an_agent_that_does_not_speak_first_plays_no_greeting(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number(**{**GREETS, "first_speaker": "user"})
        phone = harness.invite()
        await until(lambda: 200 in phone.sent)
        phone.hangs_up()
        await harness.ended_call(phone)
        assert harness.tts.spoken == []


async def test_words_that_were_not_played_before_the_hangup_are_not_in_the_transcript(tmp_path: Path) -> None:
    greeting = " ".join(["word"] * 400) + "."
    async with call_service(tmp_path) as harness:
        await harness.create_number(**{**GREETS, "agent_greeting": greeting})
        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        slot = phone.slot
        await until(lambda: harness.pump.sent_position(slot) >= 2 * RATE * WORD_MS // 1000)
        phone.hangs_up()
        call = await harness.ended_call(phone)
    (item,) = call.transcript
    assert 2 <= len(item["content"].split()) < 400


async def test_digits_reach_the_conversation(tmp_path: Path) -> None:
    async with call_service(tmp_path, [TextDelta("You chose four two."), HANG_UP]) as harness:
        await harness.create_number()
        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        for digit in "42#":
            phone.driver.on_digit(digit, "rfc4733")
        call = await harness.ended_call(phone)
    assert without_times(call.transcript)[0] == {"role": "user", "content": "42"}
    assert call.turn_count == 1


async def test_an_invite_that_is_being_admitted_when_the_drain_begins_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number()
        draining: list[asyncio.Task[None]] = []
        real = harness.database.write

        async def write(work: Any, **options: Any) -> Any:
            result = await real(work, **options)
            if not draining:
                draining.append(asyncio.create_task(harness.service.drain(30)))
                await settle()
            return result

        monkeypatch.setattr(harness.database, "write", write)
        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        late = harness.invite()
        await until(late.leg.ended.done)
        phone.hangs_up()
        await asyncio.wait_for(draining[0], 10)
        call = await harness.stored_call(phone)
    assert (phone.sent, late.sent) == ([180, 200], [503])
    assert (call.status, call.ended_reason) == ("completed", "customer_ended")


async def test_a_ringing_call_that_the_server_ends_is_rejected_with_503(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number()
        phone = Phone(harness.pump)
        phone.dialog.mute = True
        harness.service.on_incoming_call(phone.leg)
        await until(lambda: bool(harness.service.active_calls()))
        ringing = harness.service.active_calls()[0]
        harness.service.end_all()
        await harness.ended_call(phone)
    assert ringing.call.direction == "inbound"
    assert phone.sent[-1] == 503
