"""What each turn-taking setting of an agent does to the sound of a real call: two calls side by side that differ in it
alone. The recognizer knows the words at once, and the end-of-turn model always says 0.5."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from media.ports import Samples
from tests.media.speech import silence
from tests.trunkline.callers import in_noise, white, words
from tests.trunkline.place import Place, open_place
from tests.trunkline.talks import LONG, NO_MODEL, THINKS_S, answer_to, held, scripted, together

pytestmark = pytest.mark.asyncio(loop_scope="module")
QUESTION = "what are your opening hours"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """The server of this module."""
    async with open_place(tmp_path_factory.mktemp("place"), scripted) as place:
        yield place


async def first_sound_counts(place: Place, first: Samples, **agent: Any) -> bool:
    """Whether the agent answers what the caller says first; the next thing, 1.1 s later, it answers in any case. If the
    agent has a greeting, the caller begins 160 ms after it."""
    second = words(QUESTION)
    async with held(place, "All right. END", **agent) as line:
        begun = 25
        if "agentGreeting" in agent:
            begun = await line.agent_is_silent(await line.agent_begins(), 8) + 8
        await line.phone.has_heard(begun)
        at = line.says(first) + len(first) // 160
        line.says(silence(1100))
        line.says(second)
        await line.phone.hung_up()
        answered = await line.agent_begins(begun)
    assert len([role for role, _ in await line.talk() if role == "user"]) == 1
    assert answered < at + 50 or answered > at + 55 + len(second) // 160
    return answered < at + 50


def waits(gap_ms: float, wanted_ms: float) -> bool:
    """The answer came when it should: a packet or so early, as the end of speech is known no better, or as much later
    as a busy machine makes it."""
    return wanted_ms - 30 <= gap_ms < wanted_ms + 400


async def test_the_answer_waits_for_turn_endpoint_delay(place: Place) -> None:
    said = words("hello there")
    (short, _), (long, line) = await together(
        *(answer_to(place, said, turnEndpointDelay=delay, **NO_MODEL) for delay in (150, 900))
    )
    assert waits(short, 150)
    assert waits(long, 900)
    assert [turn["endedBy"] for turn in await line.turns()] == ["delay"]


async def test_sound_shorter_than_min_turn_duration_is_not_answered(place: Place) -> None:
    said = words("hello")
    assert await together(*(first_sound_counts(place, said, minTurnDuration=ms) for ms in (50, 700))) == [True, False]


async def test_the_agent_stops_after_min_interruption_duration(place: Place) -> None:
    said = words(QUESTION)

    async def stops_after(ms: int) -> float:
        greeting: dict[str, Any] = {"firstSpeaker": "agent", "agentGreeting": LONG, "agentGreetingEnabled": True}
        async with held(place, "All right. END", minInterruptionDuration=ms, **greeting) as line:
            await line.phone.has_heard(await line.agent_begins() + 50)
            first = line.says(said)
            await line.phone.hung_up()
        return 20 * (line.spells()[0][1] - first)

    soon, late = await together(stops_after(100), stops_after(800))
    assert waits(soon, 100)
    assert waits(late, 800)


async def test_sound_under_frame_activation_threshold_is_not_speech(place: Place) -> None:
    said = words("hello there", "slt")
    noisy = in_noise(said, white(len(said)), 3)
    calls = (first_sound_counts(place, noisy, frameActivationThreshold=threshold) for threshold in (0.2, 0.97))
    assert await together(*calls) == [True, False]


async def test_what_is_said_within_post_speech_cooldown_is_not_answered(place: Place) -> None:
    greeting: dict[str, Any] = {"firstSpeaker": "agent", "agentGreeting": "Good morning.", "agentGreetingEnabled": True}
    said = words("hello")
    calls = (first_sound_counts(place, said, postSpeechCooldown=ms, **greeting) for ms in (0, 1100))
    assert await together(*calls) == [True, False]


async def test_the_turn_ends_at_ultravad_eot_threshold(place: Place) -> None:
    said = words("hello there")
    (sure, early), (unsure, late) = await together(
        *(answer_to(place, said, ultravadEotThreshold=p, fallbackSilenceMs=1300) for p in (0.4, 0.6))
    )
    assert waits(sure, 100)
    assert waits(unsure, 1300)
    ends = [(turn["endedBy"], turn["eotProbability"]) for line in (early, late) for turn in await line.turns()]
    assert ends == [("model", 0.5), ("fallback", None)]


async def test_a_turn_that_the_model_does_not_end_is_over_at_fallback_silence_ms(place: Place) -> None:
    said = words("hello there")
    (soon, _), (late, line) = await together(
        *(answer_to(place, said, ultravadEotThreshold=0.9, fallbackSilenceMs=ms) for ms in (400, 1500))
    )
    assert waits(soon, 400)
    assert waits(late, 1500)
    assert [turn["endedBy"] for turn in await line.turns()] == ["fallback"]


async def test_an_answer_that_was_begun_at_speculative_silence_ms_comes_earlier(place: Place) -> None:
    said = words("hello there")
    agent: dict[str, Any] = {"ultravadEotThreshold": None, "turnEndpointDelay": 900}
    (early, begun), (late, _) = calls = await together(
        *(answer_to(place, said, "SLOW All right. END", speculativeSilenceMs=ms, **agent) for ms in (100, None))
    )
    assert [[turn["speculated"] for turn in await line.turns()] for _, line in calls] == [[True], [False]]
    assert waits(early, 900), "never before the turn is over"
    assert waits(late, 900 + 1000 * THINKS_S)
    (turn,) = await begun.turns()
    assert turn["firstTokenMs"] < turn["turnEndMs"] < turn["agentStartMs"]
    assert await begun.talk() == [("user", "hello there"), ("assistant", "All right.")]
