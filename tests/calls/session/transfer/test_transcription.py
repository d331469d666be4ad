"""An agent that stays on the call (`stayOnCall`) transcribes the caller and the target, and says nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
import structlog

from calls.session import live_transcript
from calls.session.transfer import guarded_speech, transcription
from calls.session.transfer.transcription_stop_phrases import stops_transcription
from config.errors import ModelError
from media.audio_port import Samples
from storage import tables
from storage.calls import calls, recordings
from storage.calls.calls import Call, Speaker
from tests.calls.call_service_harness import CallServiceHarness, call_service, until
from tests.calls.outbound_calls import callee
from tests.calls.session.transfer.transfer_calls import SALES, caller, child_of, ended_transfer, tool_call, transfer_of
from tests.fakes.fake_leg import Callee, Phone
from tests.fakes.scripted_call import ScriptedSttStream
from tests.media.speech import silence, speech

PARTIES: tuple[Speaker, Speaker] = ("caller", "target")
SHORT, LONG = "the blue chairs", "i would like to know what the blue chairs cost"


@dataclass
class ConnectedCall:
    """A caller and a target, connected by an agent that stays on the call. Its recognizer is scripted."""

    harness: CallServiceHarness
    phone: Phone
    target: Callee

    def stream(self, speaker: Speaker) -> ScriptedSttStream:
        """The recognizer of a party."""
        return self.harness.stt.streams[-2 + PARTIES.index(speaker)]

    def says(self, speaker: Speaker, *texts: str, audio: Samples | None = None) -> None:
        """A party begins to speak; `texts` are recognized in what it says."""
        self.stream(speaker).texts.extend(texts)
        slot = self.phone.slot if speaker == "caller" else self.target.slot
        self.harness.pump.speak(slot, speech(SHORT) if audio is None else audio)

    async def heard(self, speaker: Speaker, utterances: int) -> None:
        """Wait until a party has said so much since the connection."""
        await until(lambda: len(self.stream(speaker).turns) >= utterances)

    async def say(self, *talk: tuple[Speaker, str]) -> None:
        """The parties speak one after the other."""
        for speaker, text in talk:
            before = len(self.stream(speaker).turns)
            self.says(speaker, text)
            await self.heard(speaker, before + 1)

    async def pass_ms(self, ms: int) -> None:
        """Wait for so much time of the audio's clock."""
        end_ms = self.harness.pump.now_ms + ms
        await until(lambda: self.harness.pump.now_ms >= end_ms)

    async def ended(self) -> Call:
        """The target hangs up; returns the caller's call."""
        self.target.ends()
        return await self.harness.ended_call(self.phone)

    async def until_stored(self, holds: Callable[[Call], bool]) -> Call:
        """Wait until the caller's live call is stored so."""
        parent = await self.harness.stored_call(self.phone)
        found = await self.harness.database.until(
            lambda conn: calls.get_by_id(conn, parent.id), lambda call: call is not None and holds(call)
        )
        assert found is not None
        return found


@asynccontextmanager
async def connected(
    data_dir: Path, mode: str = "cold", *, redact: bool = False, **agent: Any
) -> AsyncIterator[ConnectedCall]:
    """A connected call whose agent stays on it. `redact`: its organization redacts numbers."""
    targets = [{**SALES, "mode": mode}]
    async with call_service(data_dir, tool_call("Sales")) as harness:
        phone = await caller(harness, **{"stay_on_call": True, "transfer_targets": targets, **agent})
        target = await callee(harness)
        await harness.database.write(lambda conn: conn.execute(sa.update(tables.organizations).values(redact=redact)))
        target.answers()
        if mode == "warm_briefing":
            await until(lambda: any("take the call" in text for text in harness.tts.spoken))
            target.driver.on_digit("1", "rfc4733")
        await until(lambda: harness.pump.bridges)
        call = ConnectedCall(harness, phone, target)
        await until(lambda: len(harness.stt.streams) == 4)  # the agent's, the screening's or briefing's, and two
        for speaker in PARTIES:
            call.stream(speaker).texts = deque()
        yield call


def talk_of(call: Call) -> list[tuple[str, str]]:
    """What the connected parties said."""
    return [(item["speaker"], item["content"]) for item in call.transcript if "speaker" in item]


@pytest.mark.parametrize("mode", ["cold", "warm_briefing"])
async def test_the_transcript_has_what_both_parties_say_and_who_said_it(tmp_path: Path, mode: str) -> None:
    async with connected(tmp_path, mode) as call:
        harness = call.harness
        prompts, spoken = len(harness.llm.prompts), len(harness.tts.spoken)
        talk: list[tuple[Speaker, str]] = [("target", "sales hello"), ("caller", "good day"), ("target", "yes")]
        await call.say(*talk)
        assert (len(harness.llm.prompts), len(harness.tts.spoken)) == (prompts, spoken)
        parent = await call.ended()
        child = await child_of(harness, await ended_transfer(harness, call.phone))
    assert talk_of(parent) == talk
    assert [item["role"] for item in parent.transcript] == ["assistant", "assistant", "user", "user", "user"]
    assert not any("speaker" in item for item in parent.transcript[:2])
    assert parent.turn_count == 0
    assert not any(item["content"] == "good day" for item in child.transcript)
    assert child.turn_count == (1 if mode == "warm_briefing" else 0)


async def test_the_timeline_has_the_times_of_each_utterance(tmp_path: Path) -> None:
    async with connected(tmp_path) as call:
        await call.say(("caller", "good day"), ("target", "sales hello"))
        parent = await call.ended()
    turns = [turn for turn in parent.timeline if "speaker" in turn]
    assert [turn["speaker"] for turn in turns] == ["caller", "target"]
    for turn in turns:
        assert turn["turn"] == 0
        assert turn["speech_start_ms"] < turn["speech_end_ms"] < turn["turn_end_ms"] <= turn["text_ready_ms"]
        assert (turn["agent_start_ms"], turn["response_gap_ms"], turn["ended_by"]) == (None, None, "delay")
    assert turns[0]["speech_start_ms"] < turns[1]["speech_start_ms"]


async def test_utterances_are_in_the_order_of_their_beginnings(tmp_path: Path) -> None:
    async with connected(tmp_path) as call:
        call.says("caller", "a long question", audio=speech(LONG))
        await until(lambda: call.stream("caller").fed > 2000)
        await call.say(("target", "mm-hmm"))
        assert call.stream("caller").turns == []
        await call.heard("caller", 1)
        parent = await call.ended()
    assert talk_of(parent) == [("caller", "a long question"), ("target", "mm-hmm")]
    starts = [turn["speech_start_ms"] for turn in parent.timeline if "speaker" in turn]
    assert starts == sorted(starts)


async def test_the_words_are_stored_and_metered_while_the_parties_talk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_transcript, "PROGRESS_DELAY_S", 0.01)
    monkeypatch.setattr(live_transcript, "SHARED_PROGRESS_DELAY_S", 0.01)
    async with connected(tmp_path) as call:
        await call.say(("caller", "my card is 4111 1111 1111 1111"))
        first = await call.until_stored(lambda stored: len(talk_of(stored)) == 1)
        await call.say(("target", "thank you"))
        both = await call.until_stored(lambda stored: len(talk_of(stored)) == 2)
        fed_s = [sum(call.stream(speaker).turns) / 8000 for speaker in PARTIES]
    assert first.usage is not None
    assert both.usage is not None
    assert min(fed_s) > 0.5
    assert first.usage["heard_s"] == pytest.approx(fed_s[0], abs=0.001)
    assert both.usage["heard_s"] == pytest.approx(sum(fed_s), abs=0.001)


async def test_a_number_is_redacted_before_it_is_stored_also_between_words_of_the_other_party(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_transcript, "PROGRESS_DELAY_S", 0.01)
    monkeypatch.setattr(live_transcript, "SHARED_PROGRESS_DELAY_S", 0.01)
    talk: list[tuple[Speaker, str]] = [
        ("caller", "my card is 4111 1111"),
        ("target", "yes 22"),
        ("caller", "1111 1111 thanks"),
    ]
    redacted = [("caller", "my card is [card]"), ("target", "yes 22"), ("caller", "[card] thanks")]
    async with connected(tmp_path, redact=True) as call:
        await call.say(*talk)
        stored = await call.until_stored(lambda stored: len(talk_of(stored)) == 3)
        assert talk_of(stored) == redacted
        assert talk_of(await call.ended()) == redacted


@pytest.mark.parametrize("speaker", PARTIES)
async def test_either_party_ends_the_transcription_by_a_word_and_stays_connected(
    tmp_path: Path, speaker: Speaker
) -> None:
    async with connected(tmp_path) as call:
        other: Speaker = "target" if speaker == "caller" else "caller"
        await call.say((other, "stop the transfer"), (speaker, "please stop the transcript"))
        await call.pass_ms(100)
        windows = call.harness.engine.stats.windows_run
        call.says(other, "a secret")
        await call.pass_ms(4000)
        assert call.harness.engine.stats.windows_run == windows
        assert call.harness.pump.bridges == [frozenset((call.phone.slot, call.target.slot))]
        assert all(call.stream(each).closed for each in PARTIES)
        parent = await call.ended()
    assert talk_of(parent) == [(other, "stop the transfer"), (speaker, "please stop the transcript")]
    ends = [turn.get("transcription_ended") for turn in parent.timeline if "speaker" in turn]
    assert ends == [None, speaker]
    assert parent.ended_reason == "transferred"


def fail_at_the_end_of_turns(stream: ScriptedSttStream) -> None:
    stream.end_turn_error = ModelError("the recognizer has failed")


def fail_on_audio(stream: ScriptedSttStream) -> None:
    def on_words(_: str) -> None:
        raise RuntimeError("the recognizer's process has died")

    stream.on_words = on_words


def hang(stream: ScriptedSttStream) -> None:
    stream.gate.clear()


@pytest.mark.parametrize("fail", [fail_at_the_end_of_turns, fail_on_audio, hang])
async def test_an_error_of_the_recognizer_ends_the_transcription_alone(
    tmp_path: Path, fail: Callable[[ScriptedSttStream], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarded_speech, "TEXT_TIMEOUT_S", 0.3)
    with structlog.testing.capture_logs() as logs:
        async with connected(tmp_path) as call:
            await call.say(("caller", "good day"))
            fail(call.stream("target"))
            call.says("target", "lost")
            await until(lambda: call.stream("caller").closed and call.stream("target").closed)
            failed_ms = call.harness.pump.now_ms
            await call.pass_ms(5000)
            assert call.harness.pump.bridges == [frozenset((call.phone.slot, call.target.slot))]
            parent = await call.ended()
    assert talk_of(parent) == [("caller", "good day")]
    assert parent.timeline[-1]["transcription_ended"] == "error"
    assert parent.ended_reason == "transferred"
    frames = recordings.path_of(tmp_path, parent.id, parent.created_at).stat().st_size / 4 / 8
    assert frames > failed_ms - 1_000_000 + 3000
    assert [each["event"] for each in logs if each["event"] == "transcription.failed"] == ["transcription.failed"]
    assert [each["reason"] for each in logs if each["event"] == "transcription.ended"] == ["error"]


async def test_a_recognizer_that_cannot_be_opened_does_not_keep_the_parties_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with call_service(tmp_path, tool_call("Sales")) as harness:
        phone = await caller(harness, stay_on_call=True)
        target = await callee(harness)

        def fail(**_: object) -> None:
            raise ModelError("no more streams")

        monkeypatch.setattr(harness.stt, "open", fail)
        target.answers()
        await until(lambda: harness.pump.bridges)
        target.ends()
        parent = await harness.ended_call(phone)
    assert parent.ended_reason == "transferred"
    assert parent.timeline[-1]["transcription_ended"] == "error"


async def test_the_last_words_before_the_hang_up_are_recognized(tmp_path: Path) -> None:
    async with connected(tmp_path) as call:
        call.says("caller", "goodbye", audio=speech(LONG))
        await until(lambda: call.stream("caller").fed > 4000)
        parent = await call.ended()
    assert talk_of(parent) == [("caller", "goodbye")]
    assert (parent.timeline[-1]["ended_by"], parent.timeline[-1]["speaker"]) == (None, "caller")


async def test_a_recognizer_that_hangs_delays_the_hang_up_for_a_moment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcription, "LAST_WORDS_S", 0.05)
    async with connected(tmp_path) as call:
        call.stream("caller").gate.clear()
        call.says("caller", "goodbye", audio=speech(LONG))
        await until(lambda: call.stream("caller").fed > 4000)
        parent = await call.ended()
    assert talk_of(parent) == []
    assert parent.ended_reason == "transferred"


async def test_the_words_are_kept_although_the_recording_stops(tmp_path: Path) -> None:
    async with connected(tmp_path, record_after_transfer=False) as call:
        connected_ms = call.harness.pump.now_ms
        await call.say(("caller", "good day"))
        await call.pass_ms(5000)
        parent = await call.ended()
    assert talk_of(parent) == [("caller", "good day")]
    frames = recordings.path_of(tmp_path, parent.id, parent.created_at).stat().st_size / 4 / 8
    assert frames < connected_ms - 1_000_000 + 3000


async def test_what_the_other_party_does_not_hear_because_of_a_hold_is_not_transcribed(tmp_path: Path) -> None:
    async with connected(tmp_path) as call:
        call.says("target", "one moment", audio=speech(LONG))
        await until(lambda: call.stream("target").fed > 2000)
        call.phone.holds()
        await call.heard("target", 1)
        await call.say(("caller", "music"), ("target", "a word to a colleague"))
        call.phone.holds(False)
        await call.say(("caller", "here i am again"))
        parent = await call.ended()
    assert talk_of(parent) == [("caller", "here i am again")]


async def test_the_transcription_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcription, "MAX_UTTERANCES", 2)
    async with connected(tmp_path) as call:
        await call.say(("caller", "one"), ("target", "two"))
        await until(lambda: call.stream("caller").closed)
        parent = await call.ended()
    assert talk_of(parent) == [("caller", "one"), ("target", "two")]
    assert parent.timeline[-1]["transcription_ended"] == "limit"


async def test_without_stay_on_call_nothing_is_recognized(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales")) as harness:
        phone = await caller(harness)
        target = await callee(harness)
        target.answers()
        await until(lambda: harness.pump.bridges)
        windows, transfer = harness.engine.stats.windows_run, await transfer_of(harness, phone)
        harness.pump.speak(phone.slot, np.concatenate([speech(SHORT), silence(4000)]))
        harness.pump.speak(target.slot, np.concatenate([speech(SHORT), silence(4000)]))
        end_ms = harness.pump.now_ms + 4000
        await until(lambda: harness.pump.now_ms >= end_ms)
        assert harness.engine.stats.windows_run == windows
        assert len(harness.stt.streams) == 2, "the agent's, and that of the screening"
        assert harness.stt.streams[-1].closed
        target.ends()
        parent = await harness.ended_call(phone)
        assert (await child_of(harness, transfer)).transcript == []
    assert talk_of(parent) == []


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("stop listening", None),
        ("please stop the transcript", "en"),
        ("okay assistant stop transcribing now please", "en-GB"),
        ("One moment. Stop the transcription, please! It is private.", None),
        ("could you turn off the transcription", None),
        ("Hören Sie bitte auf mitzuschreiben.", "de"),
        ("bitte nicht mehr mithören", "de"),
        ("die mitschrift beenden bitte", "de-AT"),
        ("Arrêtez la transcription, s'il vous plaît.", "fr"),
        ("n\u2019écoutez plus", "fr"),
        ("por favor deje de escuchar", "es"),
        ("detenga la transcripción", "es"),
        ("smetta di ascoltare per favore", "it"),
        ("interrompa la trascrizione", "it"),
        ("stop met luisteren alstublieft", "nl"),
        ("stop de transcriptie", "nl"),
        ("pare de ouvir por favor", "pt"),
        ("encerre a transcrição", "pt"),
        ("stop listening", "fi"),
    ],
)
def test_a_request_of_its_own_stops_the_transcription(text: str, language: str | None) -> None:
    assert stops_transcription(text, language)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("", None),
        ("stop", None),
        ("please stop", None),
        ("listening", None),
        ("stop the transfer", None),
        ("stop the transmission please", None),
        ("he told me to stop listening", None),
        ("i will not stop listening to you", None),
        ("don't stop listening", None),
        ("stop listening to him", None),
        ("when did the transcript stop", None),
        ("do not stop the transcript", None),
        ("i need the transcript", None),
        ("you can leave the call now", None),
        ("please stop the order", None),
        ("nicht mehr", "de"),
        ("ich möchte nicht mehr zuhören müssen", "de"),
        ("hören sie auf", "de"),
        ("bitte nicht auflegen", "de"),
        ("la transcription est bonne", "fr"),
        ("arrêtez", "fr"),
        ("no quiero escuchar más", "es"),
        ("deje de llamar", "es"),
        ("non voglio più ascoltare", "it"),
        ("stop met bellen", "nl"),
        ("ik wil niet meer luisteren naar hem", "nl"),
        ("pare de ligar", "pt"),
        ("stop listening", "de"),
    ],
)
def test_talk_does_not_stop_the_transcription(text: str, language: str | None) -> None:
    assert not stops_transcription(text, language)
