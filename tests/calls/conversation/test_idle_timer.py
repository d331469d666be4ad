"""A caller who says nothing is asked once, and then left."""

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
from tests.calls.call_service_harness import open_house, until
from tests.fakes.scripted_call import WORD_MS, Talk, settle
from tests.virtual_time import virtually

SILENCE_S = 10.0
SILENCE_MS = round(SILENCE_S * 1000)
WAITS = ConversationConfig("You help.", user_idle_ms=SILENCE_MS)
GREETS = ConversationConfig("You help.", greeting="Good morning.", speaks_first=True, user_idle_ms=SILENCE_MS)
STILL_THERE = "Are you still there?"
ASKED = ("assistant", STILL_THERE)
GOODBYE = ("assistant", "I cannot hear you, so I will hang up now. Goodbye.")


@asynccontextmanager
async def talking(script: ConversationConfig, *answers: Any) -> AsyncIterator[Talk]:
    talk = Talk(script, *answers)
    await settle()
    yield talk
    await talk.close()


async def passes(seconds: float) -> None:
    """Time, in which no sound is sent."""
    await asyncio.sleep(seconds)
    await settle()


@virtually
async def test_the_agent_asks_once_and_then_ends_the_call() -> None:
    async with talking(WAITS) as talk:
        await passes(SILENCE_S)
        await talk.play(5 * WORD_MS)
        assert talk.items == [ASKED]
        await passes(SILENCE_S)
        await talk.play(20 * WORD_MS)
        assert talk.items == [ASKED, GOODBYE]
        assert await talk.run == "customer_silent"
        assert [turn["ended_by"] for turn in talk.conversation.timeline.items()] == ["silence", "silence"]


@virtually
async def test_words_of_the_caller_begin_the_count_anew() -> None:
    async with talking(WAITS, "At nine.") as talk:
        await passes(SILENCE_S)
        await talk.play(5 * WORD_MS)
        await talk.says("when do you open")
        await talk.play(3 * WORD_MS)
        await passes(SILENCE_S)
        await talk.play(5 * WORD_MS)
        assert talk.items == [ASKED, ("user", "when do you open"), ("assistant", "At nine."), ASKED]


@virtually
async def test_no_time_counts_while_anyone_speaks() -> None:
    async with talking(GREETS) as talk:
        await talk.play(WORD_MS)
        await passes(3 * SILENCE_S)
        assert talk.voice.spoken == ["Good morning."], "the agent speaks"
        await talk.play(2 * WORD_MS)
        await talk.starts_speaking()
        await passes(3 * SILENCE_S)
        assert talk.voice.spoken == ["Good morning."], "the caller speaks"
        await talk.makes_noise()
        await passes(SILENCE_S - 0.1)
        assert talk.voice.spoken == ["Good morning."]
        await passes(0.1)
        assert talk.voice.spoken == ["Good morning.", STILL_THERE]


@virtually
async def test_a_goodbye_that_the_caller_interrupts_ends_nothing() -> None:
    async with talking(WAITS, "At nine.") as talk:
        await passes(SILENCE_S)
        await talk.play(5 * WORD_MS)
        await passes(SILENCE_S)
        await talk.play(3 * WORD_MS)
        await talk.interrupts()
        await talk.stops_speaking("I am here, when do you open")
        await talk.play(3 * WORD_MS)
        assert not talk.run.done()
        assert talk.items[-1] == ("assistant", "At nine.")


@virtually
async def test_a_caller_who_speaks_as_the_time_runs_out_is_not_asked() -> None:
    async with talking(WAITS) as talk:
        await talk.starts_speaking()
        talk.times_out()
        await settle()
        assert talk.voice.spoken == []


@virtually
async def test_zero_never_asks() -> None:
    async with talking(ConversationConfig("You help.")) as talk:
        await passes(3600)
        assert talk.voice.spoken == []


@virtually
async def test_a_caller_who_types_a_long_number_is_not_asked() -> None:
    async with talking(WAITS, "Thank you.") as talk:
        loop = asyncio.get_running_loop()
        entry = DtmfCollector(talk.inbox.put, loop.call_later, lambda: loop.time() * 1000)
        await passes(SILENCE_S - 1)
        for digit in "4111111111111111":
            entry.on_digit(digit, "rfc4733")
            await passes(1.5)
        assert talk.voice.spoken == []
        await passes(0.5)
        await talk.play(5 * WORD_MS)
        assert talk.items == [("user", "4111111111111111"), ("assistant", "Thank you.")]


@virtually
async def test_the_silence_counts_from_the_last_key() -> None:
    async with talking(WAITS) as talk:
        entry = DtmfCollector(talk.inbox.put, asyncio.get_running_loop().call_later, lambda: 0.0)
        await passes(SILENCE_S - 1)
        entry.on_digit("#", "rfc4733")
        await passes(SILENCE_S - 0.1)
        assert talk.voice.spoken == []
        await passes(0.1)
        assert talk.voice.spoken == [STILL_THERE]


@virtually
async def test_time_on_hold_does_not_count_and_the_time_around_it_does() -> None:
    async with talking(WAITS) as talk:
        for seconds in (3, 3, 3):
            await passes(seconds)
            talk.inbox.put(HoldChanged(True))
            await passes(3 * SILENCE_S)
            talk.inbox.put(HoldChanged(False))
        await passes(SILENCE_S - 9.1)
        assert talk.voice.spoken == []
        await passes(0.1)
        assert talk.voice.spoken == [STILL_THERE]


@virtually
async def test_a_silence_that_begins_on_hold_counts_from_its_end() -> None:
    async with talking(GREETS) as talk:
        talk.inbox.put(HoldChanged(True))
        await talk.play(4 * WORD_MS)
        await passes(3 * SILENCE_S)
        talk.inbox.put(HoldChanged(False))
        await passes(SILENCE_S - 0.1)
        assert talk.voice.spoken == ["Good morning."]
        await passes(0.1)
        assert talk.voice.spoken == ["Good morning.", STILL_THERE]


@pytest.mark.parametrize("from_the_answer_on", [False, True])
async def test_a_caller_who_is_on_hold_is_not_asked(tmp_path: Path, from_the_answer_on: bool) -> None:
    async with open_house(tmp_path) as house:
        await house.number(customer_silence_ms=500)
        phone = house.rings()
        phone.dialog.answered_held = from_the_answer_on
        await until(lambda: phone.leg.on_digit is not None)
        if not from_the_answer_on:
            phone.holds()
        loop = asyncio.get_running_loop()
        held_s = loop.time()
        await until(lambda: loop.time() - held_s > 1.2)
        assert house.voice.spoken == []
        phone.holds(False)
        await until(lambda: house.voice.spoken == [STILL_THERE])
