"""A caller who says nothing is asked once, and then left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from calls.script import Script
from calls.silence import SilenceWatch
from tests.fakes_calls import WORD_MS, Talk, settle

Begin = Callable[..., Talk]
SILENCE_MS = 80
WAITS = Script("You help.", silence_ms=SILENCE_MS)
GREETS = Script("You help.", greeting="Good morning.", speaks_first=True, silence_ms=SILENCE_MS)
ASKED = ("assistant", "Are you still there?")
GOODBYE = ("assistant", "I cannot hear you, so I will hang up now. Goodbye.")


@pytest.fixture
async def begin() -> AsyncIterator[Begin]:
    talks: list[Talk] = []

    def make(script: Script, *answers: Any) -> Talk:
        talks.append(Talk(script, *answers))
        return talks[-1]

    yield make
    for talk in talks:
        await talk.close()


async def test_the_agent_asks_once_and_then_ends_the_call(begin: Begin) -> None:
    talk = begin(WAITS)
    await talk.voice.until_spoken(1)
    await talk.play(5 * WORD_MS)
    assert talk.items == [ASKED]
    await talk.voice.until_spoken(2)
    await talk.play(20 * WORD_MS)
    assert talk.items == [ASKED, GOODBYE]
    assert await asyncio.wait_for(talk.run, 1) == "customer_silent"
    assert [turn["ended_by"] for turn in talk.conversation.timeline.items()] == ["silence", "silence"]


async def test_words_of_the_caller_begin_the_count_anew(begin: Begin) -> None:
    talk = begin(WAITS, "At nine.")
    await talk.voice.until_spoken(1)
    await talk.play(5 * WORD_MS)
    await talk.says("when do you open")
    await talk.play(3 * WORD_MS)
    await talk.voice.until_spoken(3)
    await talk.play(5 * WORD_MS)
    assert talk.items == [ASKED, ("user", "when do you open"), ("assistant", "At nine."), ASKED]


async def test_no_time_counts_while_anyone_speaks(begin: Begin) -> None:
    talk = begin(GREETS)
    await settle()
    await talk.play(WORD_MS)
    await asyncio.sleep(3 * SILENCE_MS / 1000)
    assert talk.voice.spoken == ["Good morning."], "the agent speaks"
    await talk.play(2 * WORD_MS)
    await talk.starts_speaking()
    await asyncio.sleep(3 * SILENCE_MS / 1000)
    assert talk.voice.spoken == ["Good morning."], "the caller speaks"
    await talk.makes_noise()
    await talk.voice.until_spoken(2)


async def test_a_goodbye_that_the_caller_interrupts_ends_nothing(begin: Begin) -> None:
    talk = begin(WAITS, "At nine.")
    await talk.voice.until_spoken(1)
    await talk.play(5 * WORD_MS)
    await talk.voice.until_spoken(2)
    await talk.play(3 * WORD_MS)
    await talk.interrupts()
    await talk.stops_speaking("I am here, when do you open")
    await talk.play(3 * WORD_MS)
    assert not talk.run.done()
    assert talk.items[-1] == ("assistant", "At nine.")


async def test_a_caller_who_speaks_as_the_time_runs_out_is_not_asked(begin: Begin) -> None:
    talk = begin(WAITS)
    await talk.starts_speaking()
    talk.times_out()
    await settle()
    assert talk.voice.spoken == []


async def test_zero_never_asks(begin: Begin) -> None:
    talk = begin(Script("You help."))
    await asyncio.sleep(2 * SILENCE_MS / 1000)
    assert talk.voice.spoken == []


def test_time_on_hold_does_not_count() -> None:
    timers: list[Callable[[], None]] = []
    fired: list[None] = []
    held = True

    class Timer:
        def cancel(self) -> None:
            timers.clear()

    def later(_: float, run: Callable[[], None]) -> Timer:
        timers.append(run)
        return Timer()

    watch = SilenceWatch(1000, lambda: fired.append(None), later, lambda: held)
    watch.follow(True)
    timers.pop()()
    assert (fired, len(timers)) == ([], 1)
    held = False
    timers.pop()()
    assert fired == [None]
