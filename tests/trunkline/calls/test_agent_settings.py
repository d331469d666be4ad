"""The effect of agent settings besides turn taking on the audio of a call: two calls at once that differ in one
setting. The recognizer has the words at once; the voices are real. Also a tool in a call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from aiohttp import web

from calls.conversation.stock_phrases import stock_phrases
from calls.conversation.tool_loop import FILLER_AFTER_S
from media.audio_port import Samples
from tests.calls.http_server import serving
from tests.trunkline.caller_speech import words
from tests.trunkline.calls.test_background_sounds import uploaded
from tests.trunkline.phone_calls import AgentCall, agent_call, scripted, together
from tests.trunkline.server_in_process import LocalServer, open_local_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
WHOLE_WEEK = "We are open from nine to five on all days of the week."
HOURS = "We are open from nine to five on weekdays."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with open_local_server(tmp_path_factory.mktemp("server"), scripted) as local_server:
        yield local_server


def greets(text: str, **agent: Any) -> dict[str, Any]:
    """Agent fields: the agent speaks first, with this greeting."""
    return {"firstSpeaker": "agent", "agentGreeting": text, "agentGreetingEnabled": True, **agent}


async def greeted(local_server: LocalServer, text: str, prompt: str = "All right.", **agent: Any) -> AgentCall:
    """A call that ends after the agent's first message."""
    async with agent_call(local_server, prompt, **greets(text, **agent)) as line:
        await line.answers(1)
        await line.phone.hears(10)
        await line.phone.hang_up()
    return line


def pitches(sound: Samples) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The pitch of voiced audio at 8 kHz, in Hz, by autocorrelation of 40 ms every 10 ms."""
    found = []
    for start in range(0, len(sound) - 320, 80):
        frame = sound[start : start + 320].astype(np.float64)
        frame -= frame.mean()
        likeness = np.correlate(frame, frame, "full")[319:]
        lag = 20 + int(np.argmax(likeness[20:133]))
        if np.sqrt(np.mean(frame**2)) > 500 and likeness[lag] > 0.6 * likeness[0]:
            found.append(8000 / lag)
    return np.array(found)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def greetings(local_server: LocalServer) -> dict[str, AgentCall]:
    """Calls with the first messages of different agents, all at once."""
    calls = {
        "enabled": greeted(local_server, "Hi.", HOURS),
        "disabled": greeted(local_server, "Hi.", HOURS, agentGreetingEnabled=False),
        "missing": greeted(local_server, "Hi.", HOURS, agentGreeting=None),
        "slow": greeted(local_server, HOURS, voiceSpeed=0.7),
        "quick": greeted(local_server, HOURS, voiceSpeed=1.4),
        "lively": greeted(local_server, WHOLE_WEEK, voiceStability=0),
        "even": greeted(local_server, WHOLE_WEEK, voiceStability=1),
    }
    return dict(zip(calls, await together(*calls.values()), strict=True))


async def test_allow_end_call_lets_the_agent_hang_up(local_server: LocalServer) -> None:
    utterance = words("hello there")

    async def may() -> AgentCall:
        async with agent_call(local_server, "Bye. END", allowEndCall=True) as line:
            await line.phone.hears(25)
            line.says(utterance)
            await line.phone.hung_up()
        return line

    async def may_not() -> AgentCall:
        async with agent_call(local_server, "Bye. END", allowEndCall=False) as line:
            for count in (1, 2):
                await line.phone.hears(20)
                line.says(utterance)
                await line.answers(count)
            await line.phone.hang_up()
        return line

    ended, went_on = await together(may(), may_not())
    assert (await ended.stored())["endedReason"] == "agent_ended"
    assert (await went_on.stored())["endedReason"] == "customer_ended"
    turn = [("user", "hello there"), ("assistant", "Bye.")]
    assert (await ended.talk(), await went_on.talk()) == (turn, turn * 2)


async def test_first_speaker_selects_who_speaks_first(local_server: LocalServer) -> None:
    utterance = words("hello there")

    async def first(speaker: str) -> tuple[bool, list[tuple[str, str]]]:
        async with agent_call(local_server, "Good morning.", firstSpeaker=speaker) as line:
            await line.phone.hears(75)
            spoke = bool(line.loud().any())
            if not spoke:
                line.says(utterance)
            await line.answers(1)
            await line.phone.hang_up()
        return spoke, await line.talk()

    agent, user = await together(first("agent"), first("user"))
    assert agent == (True, [("assistant", "Good morning.")])
    assert user == (False, [("user", "hello there"), ("assistant", "Good morning.")])


async def test_the_greeting_is_spoken_if_it_is_enabled(greetings: dict[str, AgentCall]) -> None:
    lines = [greetings[name] for name in ("enabled", "disabled", "missing")]
    assert [(await line.talk())[0][1] for line in lines] == ["Hi.", HOURS, HOURS]
    heard = [line.loud().sum() / 50 for line in lines]
    assert heard[0] < 0.8 < 1.5 < min(heard[1:])


async def test_voice_speed_divides_the_duration_of_speech(greetings: dict[str, AgentCall]) -> None:
    (slow,), (quick,) = greetings["slow"].speech_segments(), greetings["quick"].speech_segments()
    assert slow[1] - slow[0] == pytest.approx(2 * (quick[1] - quick[0]), rel=0.2)


async def test_voice_stability_evens_the_pitch(greetings: dict[str, AgentCall]) -> None:
    found = [pitches(greetings[name].phone.sound()) for name in ("lively", "even")]
    lively, even = (float(np.std(each) / np.mean(each)) for each in found)
    assert lively > 1.5 * even


async def test_an_uninterruptible_first_message_is_played_in_full(local_server: LocalServer) -> None:
    utterance = words("where are you located")

    async def greeted_over(protected: bool) -> tuple[str, float]:
        async with agent_call(
            local_server, "Yes.", **greets(WHOLE_WEEK, firstMessageUninterruptible=protected)
        ) as line:
            begun = await line.agent_begins()
            await line.phone.has_heard(begun + 30)
            line.says(utterance)
            await line.answers(1)
            await line.phone.hears(10)
            await line.phone.hang_up()
        return (await line.talk())[0][1], (line.speech_segments()[0][1] - begun) / 50

    (whole, whole_s), (cut, cut_s) = await together(greeted_over(True), greeted_over(False))
    assert whole == WHOLE_WEEK and whole_s > 2.5
    assert WHOLE_WEEK.startswith(cut) and 0 < len(cut) < 30
    assert 0.6 < cut_s < 1.5


async def test_the_first_message_comes_after_its_delay(local_server: LocalServer) -> None:
    async def begins(delay: int) -> float:
        async with agent_call(local_server, "", **greets("Hi.", firstMessageDelay=delay)) as line:
            first = await line.agent_begins()
            await line.phone.hang_up()
        return first / 50

    at_once, later = await together(begins(0), begins(1500))
    assert at_once < 0.6
    assert 1.4 < later < 2.1


async def test_a_silent_caller_is_prompted_once_after_customer_silence_ms_and_then_hung_up(
    local_server: LocalServer,
) -> None:
    async def silent_for(ms: int) -> AgentCall:
        async with agent_call(local_server, "All right.", customerSilenceMs=ms) as line:
            if ms:
                await line.phone.hung_up()
            else:
                await line.phone.hears(150)
                await line.phone.hang_up()
        return line

    asked, without_prompt = await together(silent_for(400), silent_for(0))
    phrases = stock_phrases(None)
    assert await asked.talk() == [("assistant", phrases.idle_prompt), ("assistant", phrases.idle_goodbye)]
    assert (await asked.stored())["endedReason"] == "customer_silent"
    assert [turn["endedBy"] for turn in await asked.turns()] == ["silence", "silence"]
    (question, question_end), (goodbye, _) = asked.speech_segments(0.5)
    assert 15 < question < 60
    assert 17 < goodbye - question_end < 60
    assert await without_prompt.talk() == [] and not without_prompt.loud().any()


async def test_the_language_hint_selects_the_voice_and_the_stock_phrases(local_server: LocalServer) -> None:
    async def asked_in(language: str) -> tuple[str, float]:
        async with agent_call(local_server, "", languageHint=language, customerSilenceMs=500) as line:
            await line.answers(1)
            await line.phone.hang_up()
        return (await line.talk())[0][1], float(np.median(pitches(line.phone.sound())))

    (english, flite), (german, espeak) = await together(asked_in("en-US"), asked_in("de"))
    assert (english, german) == (stock_phrases("en").idle_prompt, stock_phrases("de").idle_prompt)
    assert flite > 1.3 * espeak, "a woman's voice, and a man's"


async def test_the_background_sound_is_softer_under_the_agents_speech(local_server: LocalServer) -> None:
    """A tone above nearly all frequencies of the voice, measured by its level in 100 ms."""
    background = {"backgroundSoundId": await uploaded(local_server.client, 3400), "firstMessageDelay": 1200}

    async def levels(volume: float) -> list[float]:
        agent = greets(HOURS, backgroundSoundVolume=volume, **background)
        async with agent_call(local_server, "", **agent) as line:
            await line.answers(1)
            since = len(line.phone.packets)
            await line.phone.hears(75)
            await line.phone.hang_up()
        sound = line.phone.sound()
        parts = sound[: len(sound) // 800 * 800].reshape(-1, 800).astype(np.float64)
        tone = np.abs(parts @ np.exp(-2j * np.pi * 3400 / 8000 * np.arange(800))) / 400
        return [float(np.median(tone[a:b])) for a, b in ((4, 10), (20, since // 5 - 5), (since // 5 + 9, -1))]

    (before, under, after), (soft, *_) = await together(levels(0.4), levels(0.1))
    assert before == pytest.approx(after, rel=0.1) == pytest.approx(8000 * 0.4, rel=0.1)
    assert under == pytest.approx(before * 10**-0.5, rel=0.25)
    assert soft == pytest.approx(before / 4, rel=0.1)


async def test_a_slow_tool_is_bridged_by_a_filler_and_its_result_is_spoken(local_server: LocalServer) -> None:
    utterance = words("hello there")
    asked: list[str] = []

    async def berths(request: web.Request) -> web.Response:
        asked.append(request.path)
        await asyncio.sleep(2.5)  # longer than the filler lasts
        return web.Response(text="three", content_type="text/plain")

    async with serving(berths) as origin:
        config = {"url": f"{origin}/berths", "method": "GET"}
        tool = await local_server.client.v1("POST", "tools", {"name": "berths", "type": "http", "config": config})
        async with agent_call(local_server, "USE berths", toolIds=[tool["id"]]) as line:
            await line.phone.hears(25)
            first = line.says(utterance)
            await line.answers(1)
            await line.phone.hears(10)
            await line.phone.hang_up()
    assert asked == ["/berths"]
    filler = stock_phrases(None).filler
    assert await line.talk() == [("user", "hello there"), ("assistant", filler), ("assistant", "They say three.")]
    (turn,) = await line.turns()
    ((name, ok, took),) = [(each["name"], each["ok"], each["endMs"] - each["startMs"]) for each in turn["tools"]]
    assert (name, ok) == ("berths", True)
    assert 2500 <= took < 3500
    path = f"calls/{line.call_id}/transcript?include=tools"
    items = (await local_server.client.v1("GET", path))["transcript"]
    assert [each["role"] for each in items] == ["user", "tool", "assistant", "assistant"]
    assert (items[1]["arguments"], items[1]["result"], items[1]["error"]) == ({}, "three", None)
    assert items[1]["durationMs"] == took
    (bridge, _), (result, _) = line.speech_segments(0.3)
    since = (bridge - first) / 50 - len(utterance) / 8000
    assert FILLER_AFTER_S <= since < FILLER_AFTER_S + 0.7, "the filler, 800 ms after the tool was asked"
    assert 2.5 < since + (result - bridge) / 50 < 3.6, "the result as soon as it is there"
