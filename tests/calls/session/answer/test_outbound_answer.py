"""Answer detection of outbound calls: whom the agent talks to, and what it does about machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from config.errors import ModelError
from media.audio_port import Samples
from models.protocols import SynthesizedSpeech
from storage.calls.calls import Call
from tests.calls.call_service_harness import GREETS, CallServiceHarness, call_service, until
from tests.calls.outbound_calls import callee, ended, queue, stored
from tests.fakes.fake_leg import Callee
from tests.media.speech import silence, speech
from tests.transcripts import without_times

DETECT: dict[str, Any] = {"voicemail_detection": "detect"}
LEAVE: dict[str, Any] = {"voicemail_detection": "leave_message", "voicemail_message": "Please call {{caller}} back."}
PHRASE = "please leave a message after the tone"
SPOKEN_RATE = 8000


def sine(hz: float, ms: int) -> Samples:
    """A tone without an edge."""
    return np.rint(8000 * np.sin(2 * np.pi * hz * np.arange(ms * 8) / 8000)).astype(np.int16)


def audio(*parts: Samples) -> Samples:
    """What a callee sends: the parts, then silence."""
    return np.concatenate([silence(400), *parts])


HELLO = audio(speech("hello"))
GREETING = audio(speech(PHRASE))
GREETING_AND_BEEP = audio(speech(PHRASE), silence(500), sine(1000, 400))


async def answered(harness: CallServiceHarness, said: Samples, **agent: Any) -> tuple[Callee, Call]:
    """A call that the callee has answered with this audio."""
    call = await queue(harness, await harness.create_number(**{**GREETS, **agent}), context_variables={"caller": "us"})
    target = await callee(harness)
    target.audio = said
    target.answers()
    return target, call


def audible_ms(harness: CallServiceHarness, target: Callee) -> list[int]:
    """When the agent was audible, ms since the slot was opened."""
    return (np.flatnonzero(harness.pump.sent(target.slot)) * 1000 // SPOKEN_RATE).tolist()


async def played(harness: CallServiceHarness, target: Callee, ms: int) -> None:
    """Wait until this much audio was exchanged with the callee."""
    await until(lambda: len(harness.pump.sent(target.slot)) >= ms * SPOKEN_RATE // 1000)


async def verdicts(harness: CallServiceHarness, call: Call) -> list[str]:
    """The verdicts in the stored timeline."""
    return [each["answer"] for each in (await stored(harness, call)).timeline if "answer" in each]


async def test_a_person_is_greeted_right_after_hello_and_before_the_verdict(tmp_path: Path) -> None:
    async with call_service(tmp_path, "How are you?", hears=["hello"]) as harness:
        with capture_logs() as logs:
            target, call = await answered(harness, HELLO, **DETECT)
            await played(harness, target, 4000)
            hello_ms = len(HELLO) * 1000 // SPOKEN_RATE
            assert hello_ms < audible_ms(harness, target)[0] < hello_ms + 600
            target.ends()
            assert (await ended(harness, call)).ended_reason == "customer_ended"
        assert await verdicts(harness, call) == ["human"]
        (verdict,) = [each for each in logs if each["event"] == "call.answer_verdict"]
        assert (verdict["kind"], verdict["rule"]) == ("human", "short_answer")


async def test_without_detection_the_agent_greets_at_the_answer(tmp_path: Path) -> None:
    async with call_service(tmp_path, hears=[PHRASE]) as harness:
        target, call = await answered(harness, GREETING)
        await until(lambda: audible_ms(harness, target))
        assert audible_ms(harness, target)[0] < 400
        target.ends()
        await ended(harness, call)
        assert await verdicts(harness, call) == []


async def test_an_agent_that_speaks_first_breaks_a_silence_of_3_s(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        target, call = await answered(harness, silence(1000), **DETECT)
        await until(lambda: audible_ms(harness, target))
        assert 3000 <= audible_ms(harness, target)[0] < 3600
        target.ends()
        await ended(harness, call)


async def test_the_time_of_a_hold_is_no_silence(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        target, call = await answered(harness, silence(1000), **DETECT)
        await played(harness, target, 500)
        await harness.service.set_held(call.id, True)
        await played(harness, target, 6000)
        unheld_ms = len(harness.pump.sent(target.slot)) * 1000 // SPOKEN_RATE
        await harness.service.set_held(call.id, False)
        await until(lambda: audible_ms(harness, target))
        assert 3000 <= audible_ms(harness, target)[0] - unheld_ms < 3700
        target.ends()
        await ended(harness, call)


async def test_a_voicemail_that_speaks_during_a_hold_and_after_it_ends_the_call(tmp_path: Path) -> None:
    said = audio(silence(2000), speech("hello"), silence(3000), speech(PHRASE), silence(500), sine(1000, 400))
    async with call_service(tmp_path, hears=[PHRASE]) as harness:
        target, call = await answered(harness, said, **DETECT)
        await until(lambda: harness.engine.stats.calls)
        await harness.service.set_held(call.id, True)
        await played(harness, target, 4500)
        await harness.service.set_held(call.id, False)
        now = await ended(harness, call)
        assert (now.ended_reason, without_times(now.transcript)) == ("voicemail", [{"role": "user", "content": PHRASE}])
        assert await verdicts(harness, call) == ["voicemail"]


async def test_a_voicemail_ends_the_call_without_a_word(tmp_path: Path) -> None:
    async with call_service(tmp_path, hears=[PHRASE]) as harness:
        target, call = await answered(harness, GREETING, **DETECT)
        now = await ended(harness, call)
        assert (now.status, now.ended_reason) == ("completed", "voicemail")
        assert target.sent[-1] == -1
        assert without_times(now.transcript) == [{"role": "user", "content": PHRASE}]
        assert await verdicts(harness, call) == ["voicemail"]


async def test_a_message_is_left_after_the_beep(tmp_path: Path) -> None:
    async with call_service(tmp_path, hears=[PHRASE]) as harness:
        target, call = await answered(harness, GREETING_AND_BEEP, **LEAVE)
        await until(lambda: audible_ms(harness, target))
        sent = audible_ms(harness, target)
        now = await ended(harness, call)
        assert sent[0] > len(GREETING_AND_BEEP) * 1000 // SPOKEN_RATE
        assert sent[0] < len(GREETING_AND_BEEP) * 1000 // SPOKEN_RATE + 800
        assert now.ended_reason == "voicemail"
        assert target.sent[-1] == -1
        assert without_times(now.transcript)[-1] == {"role": "assistant", "content": "Please call us back."}


async def test_a_message_is_left_after_2_s_of_quiet_without_a_beep(tmp_path: Path) -> None:
    async with call_service(tmp_path, hears=[PHRASE]) as harness:
        target, call = await answered(harness, GREETING, **LEAVE)
        await until(lambda: audible_ms(harness, target))
        first_ms = audible_ms(harness, target)[0]
        end_ms = len(GREETING) * 1000 // SPOKEN_RATE
        assert end_ms + 1900 < first_ms < end_ms + 2800
        assert (await ended(harness, call)).ended_reason == "voicemail"


async def test_a_message_is_cut_after_30_s(tmp_path: Path) -> None:
    text = "This is a long message. " * 80
    async with call_service(tmp_path, hears=[PHRASE]) as harness:
        with capture_logs() as logs:
            _, call = await answered(harness, GREETING_AND_BEEP, **{**LEAVE, "voicemail_message": text})
            now = await ended(harness, call)
        (message,) = [each for each in logs if each["event"] == "call.voicemail_message"]
        assert message["seconds"] == pytest.approx(30, abs=0.1)
        assert any(each["event"] == "call.voicemail_message_cut" for each in logs)
        assert now.ended_reason == "voicemail"
        assert 0 < len(now.transcript[-1]["content"]) < len(text) - 100


async def test_a_voicemail_that_hangs_up_during_the_message_ends_the_call_as_voicemail(tmp_path: Path) -> None:
    text = "This is a long message. " * 20
    async with call_service(tmp_path, hears=[PHRASE]) as harness:
        target, call = await answered(harness, GREETING_AND_BEEP, **{**LEAVE, "voicemail_message": text})
        await until(lambda: audible_ms(harness, target))
        target.ends()
        now = await ended(harness, call)
        assert now.ended_reason == "voicemail"
        assert len(now.transcript[-1]["content"]) < len(text) - 50


async def test_without_a_voice_no_message_is_left(tmp_path: Path) -> None:
    async with call_service(tmp_path, hears=[PHRASE]) as harness:
        harness.tts.synthesize = _fails_on_message(harness)  # type: ignore[method-assign]
        with capture_logs() as logs:
            target, call = await answered(harness, GREETING_AND_BEEP, **LEAVE)
            assert (await ended(harness, call)).ended_reason == "voicemail"
        assert any(each["event"] == "call.voicemail_message_failed" for each in logs)
        assert target.sent[-1] == -1


def _fails_on_message(harness: CallServiceHarness) -> Any:
    synthesize = harness.tts.synthesize

    async def fails(text: str, settings: Any) -> SynthesizedSpeech:
        if "Please call" in text:
            raise ModelError("no voice")
        return await synthesize(text, settings)

    return fails


async def test_a_voicemail_that_never_stops_talking_gets_no_message(tmp_path: Path) -> None:
    talk = speech("leave a message after the tone and go on and on and on and on and on")
    async with call_service(tmp_path, hears=[PHRASE]) as harness:
        with capture_logs() as logs:
            target, call = await answered(harness, audio(speech(PHRASE), *[talk] * 20), **LEAVE)
            now = await ended(harness, call)
        assert now.ended_reason == "voicemail"
        assert any(each["event"] == "call.voicemail_message_not_left" for each in logs)
        assert target.sent[-1] == -1


@pytest.mark.parametrize("mode", [DETECT, LEAVE])
async def test_a_fax_ends_the_call_as_voicemail(tmp_path: Path, mode: dict[str, Any]) -> None:
    async with call_service(tmp_path) as harness:
        target, call = await answered(harness, audio(sine(2100, 3000)), **mode)
        assert (await ended(harness, call)).ended_reason == "voicemail"
        assert await verdicts(harness, call) == ["fax"]
        assert target.sent[-1] == -1


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("call_screening", "please say your name and why you are calling"),
        ("menu", "press one for sales"),
    ],
)
async def test_the_agent_talks_to_call_screening_and_menus(tmp_path: Path, kind: str, text: str) -> None:
    async with call_service(tmp_path, "It is about your order.", hears=[text]) as harness:
        target, call = await answered(harness, audio(speech(text)), **{**DETECT, "first_speaker": "user"})
        await until(lambda: audible_ms(harness, target))
        target.ends()
        assert (await ended(harness, call)).ended_reason == "customer_ended"
        assert await verdicts(harness, call) == [kind]
        assert harness.tts.spoken == ["It is about your order."]


async def test_the_agent_waits_in_a_queue_and_greets_the_person_who_takes_the_call(tmp_path: Path) -> None:
    text = "all our agents are busy"
    person_ms = 12_000
    said = audio(speech(text))
    said = np.concatenate([said, silence(person_ms - len(said) // 8), speech("hello")])
    async with call_service(tmp_path, hears=[text, "hello"]) as harness:
        target, call = await answered(harness, said, **DETECT)
        await until(lambda: audible_ms(harness, target))
        assert person_ms < audible_ms(harness, target)[0] < person_ms + 2500
        target.ends()
        assert (await ended(harness, call)).ended_reason == "customer_ended"
        assert await verdicts(harness, call) == ["hold_queue", "human"]


async def test_a_greeting_that_pauses_after_hello_is_a_voicemail_all_the_same(tmp_path: Path) -> None:
    said = audio(speech("hello"), silence(600), speech(PHRASE), silence(500), sine(1000, 400))
    async with call_service(tmp_path, "What?", "What?", hears=["hello", PHRASE]) as harness:
        target, call = await answered(harness, said, **LEAVE)
        now = await ended(harness, call)
        assert now.ended_reason == "voicemail"
        assert without_times(now.transcript)[-1] == {"role": "assistant", "content": "Please call us back."}
        assert target.sent[-1] == -1
        assert (await verdicts(harness, call))[-1] == "voicemail"


async def test_a_call_that_is_hung_up_by_api_while_the_agent_waits_for_the_beep(tmp_path: Path) -> None:
    async with call_service(tmp_path, hears=[PHRASE]) as harness:
        _, call = await answered(harness, audio(speech(PHRASE), *[speech("more and more")] * 10), **LEAVE)
        await until(lambda: any(live.call.id == call.id for live in harness.service.active_calls()))
        (live,) = harness.service.active_calls()
        await until(lambda: live.session._answer.is_voicemail.done())  # type: ignore[attr-defined]
        live.end("api_hangup")
        assert (await ended(harness, call)).ended_reason == "api_hangup"


async def test_a_voicemail_that_was_taken_for_a_person_ends_the_call_within_the_window(tmp_path: Path) -> None:
    said = audio(speech("hello"), silence(1500), speech(PHRASE))
    async with call_service(tmp_path, "What?", hears=["hello", PHRASE]) as harness:
        _, call = await answered(harness, said, **DETECT)
        assert (await ended(harness, call)).ended_reason == "voicemail"
        assert await verdicts(harness, call) == ["human", "voicemail"]
