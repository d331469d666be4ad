"""The effect of each turn-taking setting of an agent on the audio of a call: two calls at once that differ in that
setting. The recognizer has the words at once, and the end-of-turn model always returns 0.5."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from media.audio_port import Samples
from tests.media.speech import silence
from tests.trunkline.caller_speech import in_noise, white, words
from tests.trunkline.phone_calls import LONG, NO_MODEL, THINKS_S, AgentCall, agent_call, answer_to, scripted, together
from tests.trunkline.server_in_process import LocalServer, open_local_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
QUESTION = "what are your opening hours"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with open_local_server(tmp_path_factory.mktemp("server"), scripted) as local_server:
        yield local_server


async def first_sound_counts(local_server: LocalServer, first: Samples, **agent: Any) -> bool:
    """Whether the agent answers what the caller says first; the next thing, 1.1 s later, it answers in any case. If the
    agent has a greeting, the caller begins 400 ms after it."""
    second = words("where are you located")
    async with agent_call(local_server, "Yes. END", **agent) as line:
        begun = 20
        if "agentGreeting" in agent:
            begun = await line.agent_is_silent(await line.agent_begins(), 8) + 20
        await line.phone.has_heard(begun)
        at = line.says(first) + len(first) // 160
        line.says(silence(1100))
        line.says(second)
        await line.phone.hung_up()
        answered = await line.agent_begins(begun)
    assert len([role for role, _ in await line.talk() if role == "user"]) == 1
    assert answered < at + 50 or answered > at + 55 + len(second) // 160
    return answered < at + 50


def is_near(gap_ms: float, wanted_ms: float) -> bool:
    """The answer came when it should: a packet or so early, as the end of speech is known no better, or as much later
    as a busy machine makes it."""
    return wanted_ms - 30 <= gap_ms < wanted_ms + 400


Pairs = dict[str, list[tuple[float, AgentCall]]]
GREETING: dict[str, Any] = {"firstSpeaker": "agent", "agentGreeting": "Hi.", "agentGreetingEnabled": True}
SLOW: dict[str, Any] = {"prompt": "SLOW Yes. END", "ultravadEotThreshold": None, "turnEndpointDelay": 900}
WAITS: dict[str, tuple[dict[str, Any], tuple[Any, Any]]] = {
    "turnEndpointDelay": (NO_MODEL, (150, 900)),
    "ultravadEotThreshold": ({"fallbackSilenceMs": 1300}, (0.4, 0.6)),
    "fallbackSilenceMs": ({"ultravadEotThreshold": 0.9}, (400, 1500)),
    "speculativeSilenceMs": (SLOW, (100, None)),
}
"""The agent's other settings and the two values, by setting."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def answers(local_server: LocalServer) -> Pairs:
    """For each setting of `WAITS`, the response gap and the call with either value. All these calls are made at
    once."""
    utterance = words("hello there")
    variants = [(name, {**agent, name: value}) for name, (agent, values) in WAITS.items() for value in values]
    results = await together(*(answer_to(local_server, utterance, **agent) for _, agent in variants))
    return {name: [each for (of, _), each in zip(variants, results, strict=True) if of == name] for name in WAITS}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def counted(local_server: LocalServer) -> dict[str, list[bool]]:
    """For three settings, whether the caller's first audio is answered, with either value. All these calls are made at
    once."""
    short, clear = words("hello"), words("hello there", "slt")
    noisy = in_noise(clear, white(len(clear)), 3)
    variants: list[tuple[str, Samples, dict[str, Any]]] = [
        *(("minTurnDuration", short, {"minTurnDuration": ms}) for ms in (50, 500)),
        *(("frameActivationThreshold", noisy, {"frameActivationThreshold": p}) for p in (0.2, 0.97)),
        *(("postSpeechCooldown", short, {"postSpeechCooldown": ms, **GREETING}) for ms in (0, 1100)),
    ]
    results = await together(*(first_sound_counts(local_server, sound, **agent) for _, sound, agent in variants))
    return {
        name: [each for (of, *_), each in zip(variants, results, strict=True) if of == name] for name, *_ in variants
    }


async def test_the_answer_waits_for_turn_endpoint_delay(answers: Pairs) -> None:
    (short, _), (long, line) = answers["turnEndpointDelay"]
    assert is_near(short, 150)
    assert is_near(long, 900)
    assert [turn["endedBy"] for turn in await line.turns()] == ["delay"]


async def test_sound_shorter_than_min_turn_duration_is_not_answered(counted: dict[str, list[bool]]) -> None:
    assert counted["minTurnDuration"] == [True, False]


async def test_sound_under_frame_activation_threshold_is_not_speech(counted: dict[str, list[bool]]) -> None:
    assert counted["frameActivationThreshold"] == [True, False]


async def test_speech_within_post_speech_cooldown_is_not_answered(counted: dict[str, list[bool]]) -> None:
    assert counted["postSpeechCooldown"] == [True, False]


async def test_the_turn_ends_at_ultravad_eot_threshold(answers: Pairs) -> None:
    (sure, early), (unsure, late) = answers["ultravadEotThreshold"]
    assert is_near(sure, 100)
    assert is_near(unsure, 1300)
    ends = [(turn["endedBy"], turn["eotProbability"]) for line in (early, late) for turn in await line.turns()]
    assert ends == [("model", 0.5), ("fallback", None)]


async def test_a_turn_that_the_model_does_not_end_ends_at_fallback_silence_ms(answers: Pairs) -> None:
    (soon, _), (late, line) = answers["fallbackSilenceMs"]
    assert is_near(soon, 400)
    assert is_near(late, 1500)
    assert [turn["endedBy"] for turn in await line.turns()] == ["fallback"]


async def test_a_speculative_answer_starts_earlier(answers: Pairs) -> None:
    calls = answers["speculativeSilenceMs"]
    (early, begun), (late, _) = calls
    assert [[turn["speculated"] for turn in await line.turns()] for _, line in calls] == [[True], [False]]
    assert is_near(early, 900), "never before the turn is over"
    assert is_near(late, 900 + 1000 * THINKS_S)
    (turn,) = await begun.turns()
    assert turn["firstTokenMs"] < turn["turnEndMs"] < turn["agentStartMs"]
    assert await begun.talk() == [("user", "hello there"), ("assistant", "Yes.")]


async def test_the_agent_stops_after_min_interruption_duration(local_server: LocalServer) -> None:
    utterance = words(QUESTION)

    async def stops_after(ms: int) -> float:
        greeting: dict[str, Any] = {"firstSpeaker": "agent", "agentGreeting": LONG, "agentGreetingEnabled": True}
        async with agent_call(local_server, "Yes. END", minInterruptionDuration=ms, **greeting) as line:
            await line.phone.has_heard(await line.agent_begins() + 50)
            first = line.says(utterance)
            await line.phone.hung_up()
        return 20 * (line.speech_segments()[0][1] - first)

    soon, late = await together(stops_after(100), stops_after(800))
    assert is_near(soon, 100)
    assert is_near(late, 800)
