"""Conversations over SIP with a complete server and fake models: the language model responds with the agent's prompt
(`tests.fakes.fake_models`)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
import sqlalchemy as sa

from bench.turn.scripted_models import WORDS
from bench.turn.turn_latency import SOUND_PEAK
from calls.metrics import RESPONSE_GAP
from storage import tables
from tests.fakes.fake_models import BROKEN
from tests.media.speech import speech
from tests.transcripts import without_times
from tests.trunkline.recording_analysis import audible, read_wav, speech_segments
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.sip_phone import FRAME, calling

pytestmark = pytest.mark.asyncio(loop_scope="module")
LONG = (
    "Our office is open from nine to five on every weekday, and you will find it next to the train station, "
    "behind the old post office and the new library, where the number nine bus stops."
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with open_local_server(tmp_path_factory.mktemp("server")) as local_server:
        yield local_server


@pytest.mark.parametrize(
    "agent",
    [
        {"systemPrompt": BROKEN},
        {"systemPrompt": f"{BROKEN} voice."},
        {"languageHint": BROKEN},
    ],
    ids=["language model", "voice", "ears"],
)
async def test_a_model_that_raises_ends_its_own_call_as_error(local_server: LocalServer, agent: dict[str, Any]) -> None:
    sound = await local_server.number_with_agent("Goodbye. END", firstSpeaker="user")
    broken = await local_server.number_with_agent(agent.pop("systemPrompt", "Hello."), firstSpeaker="agent", **agent)
    since = local_server.log.mark()
    async with calling(local_server.target, sound) as other:
        other_id = await local_server.answered(since)
        since = local_server.log.mark()
        async with calling(local_server.target, broken) as call:
            broken_id = await local_server.answered(since)
            await call.hung_up()
        failed = await local_server.ended(broken_id)
        assert (failed["status"], failed["endedReason"]) == ("completed", "error")
        other.say(speech("hello there"))
        await other.hung_up()
    ended = await local_server.ended(other_id)
    assert ended["endedReason"] == "agent_ended"
    assert [item["content"] for item in ended["transcript"]] == [WORDS, "Goodbye."]
    assert len(local_server.log.all("call.failed", since)) == 1


async def test_failing_models_do_not_affect_twenty_other_calls(local_server: LocalServer) -> None:
    sound = await local_server.number_with_agent("Goodbye. END", firstSpeaker="user")
    prompts = [BROKEN, f"{BROKEN} voice."]
    broken = [await local_server.number_with_agent(prompt, firstSpeaker="agent") for prompt in prompts]
    broken.append(await local_server.number_with_agent("Hello.", firstSpeaker="agent", languageHint=BROKEN))
    since = local_server.log.mark()

    async def fails(number: str) -> None:
        async with calling(local_server.target, number) as call:
            await call.hung_up()

    async with AsyncExitStack() as stack:
        others = [await stack.enter_async_context(calling(local_server.target, sound)) for _ in range(20)]
        await asyncio.gather(*(fails(number) for number in broken))
        for other in others:
            other.say(speech("hello there"))
        await asyncio.gather(*(other.hung_up() for other in others))
    ended = await local_server.log.events_of("call.ended", 23, since=since)
    assert Counter(each["reason"] for each in ended) == {"agent_ended": 20, "error": 3}
    assert len(local_server.log.all("call.failed", since)) == 3
    for other in others:
        first = other.packets[0].sequence
        assert [packet.sequence - first for packet in other.packets] == list(range(len(other.packets)))


async def test_an_interruption_truncates_the_transcript_and_the_audio(local_server: LocalServer) -> None:
    number = await local_server.number_with_agent(
        LONG, firstSpeaker="agent", turnEndpointDelay=2000, ultravadEotThreshold=None
    )
    since = local_server.log.mark()
    async with calling(local_server.target, number) as call:
        call_id = await local_server.answered(since)
        await call.hears(150)
        before = len(call.packets)
        call.say(speech("excuse me please, I have a question for you"))
        await local_server.log.event("call.interrupted", call_id=call_id)
        await call.has_said()
        silent_from = before + 60
        await call.has_heard(silent_from + 40)
        assert not audible(call.sound(silent_from)[: 40 * 160], 8000).any(), "the phone hears nothing more of it"
        await call.hang_up()
    found = await local_server.ended(call_id)
    said = found["transcript"][0]["content"]
    assert said == LONG[: len(said)]
    assert 20 < len(said) < 100, said
    rate, sides = read_wav(await local_server.client.recording(call_id))
    [(began, ended)] = speech_segments(sides[:, 0], rate)
    left_over = audible(sides[int((began + 0.8) * rate) : int(ended * rate), 1], rate)
    assert audible(sides[: int(began * rate), 1], rate).mean() > 0.7, "the agent speaks until then"
    assert len(left_over) > 25
    assert not left_over.any(), "the right channel is silent while the caller speaks on"


async def test_the_timeline_has_the_response_gap_at_the_caller(local_server: LocalServer) -> None:
    delay_ms = 300
    settings = {"ultravadEotThreshold": None, "speculativeSilenceMs": None}
    number = await local_server.number_with_agent("All right. END", turnEndpointDelay=delay_ms, **settings)
    since, measured = local_server.log.mark(), RESPONSE_GAP._sum.get()
    async with calling(local_server.target, number) as call:
        call_id = await local_server.answered(since)
        await call.hears(50)
        said, first = speech("hello there"), len(call.packets)
        call.say(said)
        await call.hung_up()
        heard = np.abs(call.sound(first).astype(np.int32)).reshape(-1, FRAME).max(axis=1)
    gap_ms = 20 * (np.flatnonzero(heard >= SOUND_PEAK)[0] - np.flatnonzero(np.abs(said) >= SOUND_PEAK)[-1] / FRAME)
    await local_server.ended(call_id)
    timeline = await local_server.client.v1("GET", f"calls/{call_id}/timeline")
    assert (timeline["callId"], timeline["status"]) == (call_id, "completed")
    (turn,) = timeline["turns"]
    assert (turn["turn"], turn["endedBy"], turn["interrupted"]) == (1, "delay", False)
    assert turn["responseGapMs"] == pytest.approx((RESPONSE_GAP._sum.get() - measured) * 1000, abs=1)
    assert turn["responseGapMs"] == pytest.approx(gap_ms, abs=100), "as it is on the wire"
    assert turn["responseGapMs"] >= delay_ms
    order = ("speechStartMs", "speechEndMs", "turnEndMs", "textReadyMs", "firstTokenMs", "speechReadyMs", "agentEndMs")
    moments = [turn[name] for name in order]
    assert moments == sorted(moments)
    assert turn["speechReadyMs"] - 20 <= turn["agentStartMs"] < turn["agentEndMs"], "a tick is told by its beginning"
    assert turn["speechStartMs"] == pytest.approx(20 * first, abs=500)
    assert turn["speechEndMs"] - turn["speechStartMs"] == pytest.approx(len(said) / 8, abs=300)


async def test_a_call_ends_at_its_maximum_duration(local_server: LocalServer) -> None:
    number = await local_server.number_with_agent("", firstSpeaker="user")
    database, longest = local_server.server.database, sa.update(tables.agents)
    await database.write(lambda conn: conn.execute(longest.values(max_call_duration_seconds=2)))
    since = local_server.log.mark()
    async with calling(local_server.target, number) as call:
        call_id = await local_server.answered(since)
        await call.hung_up()
    await database.write(lambda conn: conn.execute(longest.values(max_call_duration_seconds=600)))
    found = await local_server.ended(call_id)
    assert (found["status"], found["endedReason"], found["durationSeconds"]) == ("completed", "max_duration", 2)


async def test_the_service_hangs_up_a_live_call(local_server: LocalServer) -> None:
    number = await local_server.number_with_agent("Hello.", firstSpeaker="user")
    since = local_server.log.mark()
    async with calling(local_server.target, number) as call:
        call_id = await local_server.answered(since)
        hanging_up = asyncio.create_task(local_server.server.calls.hangup(call_id))
        await call.hung_up()
        assert await hanging_up
    found = await local_server.ended(call_id)
    assert (found["status"], found["endedReason"]) == ("completed", "api_hangup")
    assert not await local_server.server.calls.hangup(call_id), "it has ended"


async def test_placeholders_in_prompt_and_greeting_are_replaced(local_server: LocalServer) -> None:
    number = await local_server.number_with_agent(
        "You dialled {{phone_number}}{{nothing}}. END",
        firstSpeaker="agent",
        agentGreetingEnabled=True,
        agentGreeting="Hello {{customer_number}}.",
    )
    since = local_server.log.mark()
    async with calling(local_server.target, number) as call:
        call_id = await local_server.answered(since)
        await local_server.log.event("turn.agent", call_id=call_id)
        call.say(speech("hello there"))
        await call.hung_up()
    found = await local_server.ended(call_id)
    assert [item["content"] for item in found["transcript"]] == ["Hello raw.", WORDS, f"You dialled {number}."]
    missing = await local_server.log.event("context.missing", call_id=call_id)
    assert missing["names"] == ["nothing"]


async def test_the_recording_is_announced_before_the_greeting_and_cannot_be_interrupted(
    local_server: LocalServer,
) -> None:
    number = await local_server.number_with_agent(
        "Goodbye. END",
        firstSpeaker="agent",
        agentGreetingEnabled=True,
        agentGreeting="Good morning.",
        recordingAnnouncement="This call of {{customer_number}} is recorded, so that we can improve our service.",
    )
    since = local_server.log.mark()
    async with calling(local_server.target, number) as call:
        call_id = await local_server.answered(since)
        await call.hears(25)
        call.say(speech("excuse me please, I have a question for you"))
        await local_server.log.events_of("turn.agent", 2, call_id=call_id)
        await call.has_said()
        call.say(speech("hello there"))
        await call.hung_up()
    assert not local_server.log.all("call.interrupted", since)
    found = await local_server.ended(call_id)
    announcement, greeting = found["transcript"][:2]
    assert announcement["content"] == "This call of raw is recorded, so that we can improve our service."
    assert (announcement["role"], greeting["role"], greeting["content"]) == ("assistant", "assistant", "Good morning.")
    rate, sides = read_wav(await local_server.client.recording(call_id))
    said = audible(sides[: int(announcement["endMs"] / 1000 * rate), 1], rate)
    assert announcement["endMs"] - announcement["startMs"] > 3000
    assert said.mean() > 0.7, "the recording has the announcement"
    caller = audible(sides[: int(announcement["endMs"] / 1000 * rate), 0], rate)
    assert caller.any(), "and what the caller says meanwhile"


async def test_a_call_of_an_agent_that_does_not_record_has_no_recording(local_server: LocalServer) -> None:
    number = await local_server.number_with_agent(
        "Goodbye. END", recordingEnabled=False, recordingAnnouncement="This call is recorded."
    )
    since = local_server.log.mark()
    async with calling(local_server.target, number) as call:
        call_id = await local_server.answered(since)
        call.say(speech("hello there"))
        await call.hung_up()
    found = await local_server.ended(call_id)
    assert [item["content"] for item in found["transcript"]] == [WORDS, "Goodbye."]
    assert found["recordingUrl"] is None
    status, answer = await local_server.client.get(f"/v1/calls/{call_id}/recording")
    assert (status, json.loads(answer)) == (404, {"error": "Recording not found"})
    folder = local_server.server.settings.data_dir / "recordings"
    assert not await asyncio.to_thread(lambda: list(folder.rglob(f"{call_id}*")))


async def test_dialled_digits_are_a_user_item_of_the_transcript(local_server: LocalServer) -> None:
    number = await local_server.number_with_agent("Thank you. END", firstSpeaker="user")
    since = local_server.log.mark()
    async with calling(local_server.target, number) as call:
        call_id = await local_server.answered(since)
        call.press("421#")
        await call.hung_up()
    found = await local_server.ended(call_id)
    assert without_times(found["transcript"]) == [
        {"role": "user", "content": "421"},
        {"role": "assistant", "content": "Thank you."},
    ]
    assert (found["endedReason"], found["turnCount"]) == ("agent_ended", 1)
    digits, thanks = found["transcript"]
    assert 0 < digits["endMs"] - digits["startMs"] < 2000, "from the first key to the last"
    assert digits["endMs"] < thanks["startMs"] < thanks["endMs"]


async def test_the_times_of_the_transcript_are_those_of_the_recording(local_server: LocalServer) -> None:
    greeting = "Good morning, this is the harbour office."
    greets = {"firstSpeaker": "agent", "agentGreetingEnabled": True, "agentGreeting": greeting}
    number = await local_server.number_with_agent(LONG, **greets, turnEndpointDelay=1000, ultravadEotThreshold=None)
    since = local_server.log.mark()
    async with calling(local_server.target, number) as call:
        call_id = await local_server.answered(since)
        await local_server.log.event("turn.agent", call_id=call_id)
        await call.hears(25)
        call.say(speech("hello there"))
        await local_server.log.event("turn.user", call_id=call_id)
        await call.has_said()
        await call.hears(150)
        call.say(speech("excuse me please, I have a question for you"))
        await local_server.log.event("call.interrupted", call_id=call_id)
        await call.hang_up()
    found = await local_server.ended(call_id)
    rate, sides = read_wav(await local_server.client.recording(call_id))
    said_s = {
        role: [(item["startMs"] / 1000, item["endMs"] / 1000) for item in found["transcript"] if item["role"] == role]
        for role in ("user", "assistant")
    }
    caller, agent = (speech_segments(sides[:, side], rate, 0.5) for side in (0, 1))
    assert [item["role"] for item in found["transcript"]][:3] == ["assistant", "user", "assistant"]
    assert len(agent) == 2
    assert said_s["assistant"] == [pytest.approx(each, abs=0.3) for each in agent]
    assert said_s["user"][0] == pytest.approx(caller[0], abs=0.3)
    assert found["transcript"][2]["content"] != LONG, "it was interrupted"


async def test_transcripts_are_logged_at_debug_only(local_server: LocalServer) -> None:
    """All words of the calls of this module."""
    levels: dict[str, list[str]] = {"debug": [], "above": []}
    for event, line in zip(local_server.log.events, local_server.log.lines, strict=True):
        levels["debug" if event["level"] == "debug" else "above"].append(line)
    for text in (WORDS, "Thank you.", "You dialled", "Our office is open", '"421"'):
        assert not [line for line in levels["above"] if text in line]
        assert [line for line in levels["debug"] if text in line], "it would be seen"
