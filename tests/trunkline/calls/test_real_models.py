"""Calls with the default recognizer, end-of-turn model and voice: the effect of a caller's pauses, coughs, hums, noise,
loudspeaker and interruptions on the audio of a call and on the stored call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from media.audio_port import Samples
from models.protocols import VoiceSettings
from models.tts.flite.text_to_speech import FliteTextToSpeech
from tests.media.speech import silence
from tests.trunkline.caller_speech import bark, cough, hum, in_noise, pink, words
from tests.trunkline.phone_calls import LONG, NO_MODEL, AgentCall, SpeakerPhone, agent_call, real, together
from tests.trunkline.recording_analysis import share_heard
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.server_process import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
GREETING: dict[str, Any] = {"firstSpeaker": "agent", "agentGreeting": LONG, "agentGreetingEnabled": True}
EASILY: dict[str, Any] = {"minInterruptionDuration": 50, "frameActivationThreshold": 0.2}
"""The agent pauses at every sound."""
QUESTION = "excuse me please i have a question for you"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with open_local_server(tmp_path_factory.mktemp("server"), real) as local_server:
        yield local_server


def texts_of(talk: list[tuple[str, str]], role: str) -> list[str]:
    return [content for each, content in talk if each == role]


async def call_with_interruption(local_server: LocalServer, sound: Samples | None) -> AgentCall:
    """A call whose caller makes this sound 1 s after the start of the greeting, and hangs up after it."""
    async with agent_call(local_server, "Yes.", **GREETING, **EASILY) as line:
        await line.phone.has_heard(await line.agent_begins() + 50)
        if sound is not None:
            line.says(sound)
        await line.answers(1)
        await line.phone.hears(25)
        await line.phone.hang_up()
    return line


def inserted_ms(whole: Samples, heard: Samples) -> float:
    """How much longer `heard` is than `whole` if they differ in one inserted pause, with a ramp of at most 25 ms on
    either side of it. Raises `AssertionError` otherwise."""
    longer = len(heard) - len(whole)
    assert longer >= 0, "something is missing"
    same = np.flatnonzero(heard[: len(whole)] != whole)
    before = int(same[0]) if len(same) else len(whole)
    other = np.flatnonzero(heard[longer:] != whole)
    behind = len(whole) - int(other[-1]) - 1 if len(other) else len(whole)
    assert before + behind >= len(whole) - 50 * 8, "it does not go on where it stopped"
    return longer / 8


def agents_sound(line: AgentCall) -> Samples:
    loud = np.flatnonzero(line.loud())
    return line.phone.sound()[loud[0] * 160 : (loud[-1] + 1) * 160]


async def test_a_cough_or_a_hum_pauses_the_agent_which_resumes_where_it_stopped(local_server: LocalServer) -> None:
    over = {"nothing": None, "cough": cough(), "bark": bark(), "hum": hum(), "okay": words("okay", "rms")}
    calls = dict(
        zip(
            over, await together(*(call_with_interruption(local_server, sound) for sound in over.values())), strict=True
        )
    )
    whole = agents_sound(calls["nothing"])
    for what, line in calls.items():
        assert await line.talk() == [("assistant", LONG)], what
        assert [turn["interrupted"] for turn in await line.turns()] == [False]
    pauses = {what: inserted_ms(whole, agents_sound(line)) for what, line in calls.items()}
    assert all(300 < pauses[what] < 2500 for what in ("hum", "okay")), pauses
    assert all(pauses[what] < 2500 for what in ("cough", "bark")), "they may be over before it halts"


async def test_words_interrupt_the_agent_and_truncate_the_transcript_at_the_word(local_server: LocalServer) -> None:
    """The caller starts 1.5 s or 200 ms after the agent."""
    utterance = words(QUESTION)

    async def interrupted(after: int) -> tuple[AgentCall, int, int]:
        async with agent_call(local_server, "Yes. END", **GREETING) as line:
            begun = await line.agent_begins()
            await line.phone.has_heard(begun + after)
            at = line.says(utterance)
            await line.phone.hung_up()
        return line, begun, at

    flite = await asyncio.to_thread(FliteTextToSpeech)
    speech = await flite.synthesize(LONG[: LONG.index(",") + 1], VoiceSettings("flite/slt", 1, 0.5, 8000))
    flite.close()
    for line, begun, at in await together(interrupted(75), interrupted(10)):
        talk = await line.talk()
        assert [role for role, _ in talk] in (["assistant", "user", "assistant"], ["user", "assistant"])
        assert share_heard(QUESTION, " ".join(texts_of(talk, "user"))) >= 0.5
        end = line.speech_segments(0.6)[0][1]
        assert 0 < end - at < 75, "it stops soon"
        kept = texts_of(talk, "assistant")[0] if talk[0][0] == "assistant" else ""
        heard_s = (end - begun) / 50
        ends = {LONG[: word.char_end]: word.sample_end / 8000 for word in speech.words}
        near = [text for text, second in ends.items() if abs(second - heard_s) < 0.5]
        assert kept in near or (kept == "" and heard_s < 0.6)


async def test_a_pause_in_a_sentence_ends_the_turn_only_without_the_model(
    local_server: LocalServer,
) -> None:
    parts = [words("i would like to"), silence(600), words("talk about your opening hours")]

    async def paused(**agent: Any) -> tuple[AgentCall, float]:
        async with agent_call(local_server, "Yes.", turnEndpointDelay=150, fallbackSilenceMs=1500, **agent) as line:
            await line.phone.hears(25)
            at = line.says(np.concatenate(parts))
            await line.phone.has_said()
            await line.agent_begins(len(line.phone.packets))
            await line.answers(1)
            await line.phone.hears(25)
            await line.phone.hang_up()
        return line, (line.speech_segments()[0][0] - at) / 50 - len(parts[0]) / 8000

    calls = (paused(ultravadEotThreshold=threshold) for threshold in (0.8, None))
    (patient, waited), (hasty, _) = await together(*calls)
    assert waited > 0.6 + len(parts[2]) / 8000
    assert len(patient.speech_segments()) == 1
    (user, answer) = await patient.talk()
    assert share_heard("i would like to talk about your opening hours", user[1]) >= 0.6
    assert answer == ("assistant", "Yes.")
    assert [turn["endedBy"] for turn in await patient.turns()] in (["model"], ["fallback"])
    path = f"calls/{patient.call_id}/transcript?include=words"
    timed = (await local_server.client.v1("GET", path))["transcript"]
    assert [item["wordSource"] for item in timed] == ["model", "model"]
    longest_ms = np.diff(timed[0]["wordStartsMs"]).max()
    assert 600 < longest_ms < 1600, "the pause is where it was"
    ends = [len(local_server.log.all("turn.user", call_id=line.call_id)) for line in (patient, hasty)]
    assert ends == [1, 2], "without the model it is over in the pause, and goes on"


async def test_a_caller_who_goes_on_before_the_answer_has_one_turn(local_server: LocalServer) -> None:
    """The answer is slow, and not audible yet."""
    sentence = np.concatenate([words("what are your opening hours"), silence(400), words("on the weekend")])
    async with agent_call(local_server, "SLOW Yes.", turnEndpointDelay=100, **NO_MODEL) as line:
        await line.phone.hears(25)
        at = line.says(sentence)
        await line.answers(1)
        await line.phone.hears(50)
        await line.phone.hang_up()
    ((begun, _),) = line.speech_segments()
    assert begun > at + len(sentence) // 160
    (user, answer) = await line.talk()
    assert share_heard("what are your opening hours on the weekend", user[1]) >= 0.6
    assert answer == ("assistant", "Yes.")
    ended = line.local_server.log.all("turn.user", call_id=line.call_id)
    assert [turn["turn"] for turn in ended] == [1, 1], "it was over, and went on"


async def test_turns_are_detected_in_noise(local_server: LocalServer) -> None:
    """Continuous noise, 15 dB below the caller."""
    spoken = [words("what are your opening hours"), words("where are you located")]
    sound = np.concatenate([silence(1000), spoken[0], silence(2500), spoken[1], silence(2000)])
    noisy = in_noise(sound, pink(len(sound)), 15)
    async with agent_call(local_server, "Yes.", fallbackSilenceMs=1000) as line:
        at = line.says(noisy)
        await line.phone.has_said()
        await until(lambda: len(local_server.log.all("turn.agent", call_id=line.call_id)) == 2)  # pocketsphinx may lag
        await line.phone.hang_up()
    talk = await line.talk()
    assert [role for role, _ in talk] == ["user", "assistant"] * 2
    ends = [at + 50 + len(spoken[0]) // 160, at + 175 + (len(spoken[0]) + len(spoken[1])) // 160]
    begun = [a for a, _ in line.speech_segments()]
    assert len(begun) == 2
    assert all(0 < first - end < 100 for first, end in zip(begun, ends, strict=True)), (begun, ends)


async def test_an_echo_does_not_interrupt_the_agent_and_the_caller_does(local_server: LocalServer) -> None:
    """The caller's phone has an echo after 200 ms, 20 dB softer."""
    utterance = words(QUESTION)

    async def loudspeaker() -> AgentCall:
        async with agent_call(local_server, "Yes. END", SpeakerPhone, **GREETING) as line:
            await line.answers(1)
            await line.phone.hears(50)
            line.says(utterance)
            await line.phone.hung_up()
        return line

    line, alone = await together(loudspeaker(), call_with_interruption(local_server, None))
    talk = await line.talk()
    assert [role for role, _ in talk] == ["assistant", "user", "assistant"]
    assert talk[0][1] == LONG
    assert share_heard(QUESTION, talk[1][1]) >= 0.5
    assert [turn["interrupted"] for turn in await line.turns()] == [False, False]
    first, whole = line.speech_segments()[0], alone.speech_segments()[0]
    assert first[1] - first[0] == pytest.approx(whole[1] - whole[0], abs=3), "never paused"
