"""The user idle timer, and idle prompts in conversations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from calls.conversation.config import ConversationConfig
from calls.conversation.dtmf_collector import DtmfCollector
from calls.conversation.idle_timer import HoldChanged
from tests.calls.call_service_harness import call_service, until
from tests.fakes.scripted_call import WORD_MS, ScriptedCall, settle
from tests.virtual_time import virtually

SILENCE_S = 10.0
SILENCE_MS = round(SILENCE_S * 1000)
WAITS = ConversationConfig("You help.", user_idle_ms=SILENCE_MS)
GREETS = ConversationConfig("You help.", greeting="Good morning.", speaks_first=True, user_idle_ms=SILENCE_MS)
STILL_THERE = "Are you still there?"
ASKED = ("assistant", STILL_THERE)
GOODBYE = ("assistant", "I cannot hear you, so I will hang up now. Goodbye.")


@asynccontextmanager
async def start_conversation(config: ConversationConfig, *answers: Any) -> AsyncIterator[ScriptedCall]:
    call = ScriptedCall(config, *answers)
    await settle()
    yield call
    await call.close()


async def elapse(seconds: float) -> None:
    """Let time pass, without audio."""
    await asyncio.sleep(seconds)
    await settle()


@virtually
async def test_the_agent_asks_once_and_then_ends_the_call() -> None:
    async with start_conversation(WAITS) as call:
        await elapse(SILENCE_S)
        await call.play(5 * WORD_MS)
        assert call.items == [ASKED]
        await elapse(SILENCE_S)
        await call.play(20 * WORD_MS)
        assert call.items == [ASKED, GOODBYE]
        assert await call.run == "customer_silent"
        assert [turn["ended_by"] for turn in call.conversation.timeline.items()] == ["silence", "silence"]


@virtually
async def test_words_of_the_caller_reset_the_idle_prompts() -> None:
    async with start_conversation(WAITS, "At nine.") as call:
        await elapse(SILENCE_S)
        await call.play(5 * WORD_MS)
        await call.says("when do you open")
        await call.play(3 * WORD_MS)
        await elapse(SILENCE_S)
        await call.play(5 * WORD_MS)
        assert call.items == [ASKED, ("user", "when do you open"), ("assistant", "At nine."), ASKED]


@virtually
async def test_the_timer_is_reset_while_a_side_speaks() -> None:
    async with start_conversation(GREETS) as call:
        await call.play(WORD_MS)
        await elapse(3 * SILENCE_S)
        assert call.tts.spoken == ["Good morning."], "the agent speaks"
        await call.play(2 * WORD_MS)
        await call.starts_speaking()
        await elapse(3 * SILENCE_S)
        assert call.tts.spoken == ["Good morning."], "the caller speaks"
        await call.makes_noise()
        await elapse(SILENCE_S - 0.1)
        assert call.tts.spoken == ["Good morning."]
        await elapse(0.1)
        assert call.tts.spoken == ["Good morning.", STILL_THERE]


@virtually
async def test_an_interrupted_idle_goodbye_does_not_end_the_call() -> None:
    async with start_conversation(WAITS, "At nine.") as call:
        await elapse(SILENCE_S)
        await call.play(5 * WORD_MS)
        await elapse(SILENCE_S)
        await call.play(3 * WORD_MS)
        await call.interrupts()
        await call.stops_speaking("I am here, when do you open")
        await call.play(3 * WORD_MS)
        assert not call.run.done()
        assert call.items[-1] == ("assistant", "At nine.")


@virtually
async def test_a_caller_who_speaks_as_the_timer_expires_gets_no_prompt() -> None:
    async with start_conversation(WAITS) as call:
        await call.starts_speaking()
        call.times_out()
        await settle()
        assert call.tts.spoken == []


@virtually
async def test_a_timeout_of_zero_never_prompts() -> None:
    async with start_conversation(ConversationConfig("You help.")) as call:
        await elapse(3600)
        assert call.tts.spoken == []


@virtually
async def test_a_caller_who_enters_a_long_number_gets_no_prompt() -> None:
    async with start_conversation(WAITS, "Thank you.") as call:
        loop = asyncio.get_running_loop()
        entry = DtmfCollector(call.events.put, loop.call_later, lambda: loop.time() * 1000)
        await elapse(SILENCE_S - 1)
        for digit in "4111111111111111":
            entry.on_digit(digit, "rfc4733")
            await elapse(1.5)
        assert call.tts.spoken == []
        await elapse(0.5)
        await call.play(5 * WORD_MS)
        assert call.items == [("user", "4111111111111111"), ("assistant", "Thank you.")]


@virtually
async def test_the_idle_time_counts_from_the_last_key() -> None:
    async with start_conversation(WAITS) as call:
        entry = DtmfCollector(call.events.put, asyncio.get_running_loop().call_later, lambda: 0.0)
        await elapse(SILENCE_S - 1)
        entry.on_digit("#", "rfc4733")
        await elapse(SILENCE_S - 0.1)
        assert call.tts.spoken == []
        await elapse(0.1)
        assert call.tts.spoken == [STILL_THERE]


@virtually
async def test_time_on_hold_does_not_count_and_the_time_around_it_does() -> None:
    async with start_conversation(WAITS) as call:
        for seconds in (3, 3, 3):
            await elapse(seconds)
            call.events.put(HoldChanged(True))
            await elapse(3 * SILENCE_S)
            call.events.put(HoldChanged(False))
        await elapse(SILENCE_S - 9.1)
        assert call.tts.spoken == []
        await elapse(0.1)
        assert call.tts.spoken == [STILL_THERE]


@virtually
async def test_an_idle_time_that_begins_on_hold_counts_from_its_end() -> None:
    async with start_conversation(GREETS) as call:
        call.events.put(HoldChanged(True))
        await call.play(4 * WORD_MS)
        await elapse(3 * SILENCE_S)
        call.events.put(HoldChanged(False))
        await elapse(SILENCE_S - 0.1)
        assert call.tts.spoken == ["Good morning."]
        await elapse(0.1)
        assert call.tts.spoken == ["Good morning.", STILL_THERE]


@pytest.mark.parametrize("from_the_answer_on", [False, True])
async def test_a_caller_on_hold_gets_no_prompt(tmp_path: Path, from_the_answer_on: bool) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number(customer_silence_ms=500)
        phone = harness.invite()
        phone.dialog.answered_held = from_the_answer_on
        await until(lambda: phone.leg.on_digit is not None)
        if not from_the_answer_on:
            phone.holds()
        loop = asyncio.get_running_loop()
        held_s = loop.time()
        await until(lambda: loop.time() - held_s > 1.2)
        assert harness.tts.spoken == []
        phone.holds(False)
        await until(lambda: harness.tts.spoken == [STILL_THERE])
