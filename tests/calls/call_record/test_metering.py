"""Usage metering: queued sentences, confirmed responses, and transcribed audio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest

from calls.call_record.metering import NO_USAGE, CallUsage, UsageMeter
from calls.conversation.config import ConversationConfig
from config.errors import ModelError
from models.protocols import ChatPrompt, LlmOutput
from models.token_usage import TokenUsage
from tests.fakes.scripted_call import WORD_MS, ScriptedCall, ScriptedLlm, ScriptedStt, settle

Begin = Callable[..., ScriptedCall]
LISTENS = ConversationConfig("You help.")
GREETS = ConversationConfig("You help.", greeting="Good morning to you.", speaks_first=True)


class CountingLlm(ScriptedLlm):
    """A model whose every prompt counts 100 tokens, and every part of a response 10."""

    async def respond(self, prompt: ChatPrompt) -> AsyncIterator[LlmOutput]:
        assert prompt.tokens is not None
        prompt.tokens.add_reported(100, 0)
        async for part in super().respond(prompt):
            prompt.tokens.add_reported(0, 10)
            yield part


@pytest.fixture
async def begin() -> AsyncIterator[Begin]:
    started: list[ScriptedCall] = []

    def make(config: ConversationConfig, *answers: Any) -> ScriptedCall:
        started.append(ScriptedCall(config, model=CountingLlm(*answers)))
        return started[-1]

    yield make
    for call in started:
        await call.close()


def metered_usage(call: ScriptedCall) -> tuple[int, int, int]:
    """Returns the metered prompt tokens, completion tokens and characters."""
    usage = call.meter.usage()
    return usage.prompt_tokens, usage.completion_tokens, usage.spoken_characters


async def test_a_greeting_is_speech_and_needs_no_model(begin: Begin) -> None:
    call = begin(GREETS)
    await call.play(10 * WORD_MS)
    assert metered_usage(call) == (0, 0, len("Good morning to you."))


async def test_a_response_counts_as_it_is_written_not_as_it_is_spoken(begin: Begin) -> None:
    call = begin(LISTENS, "It is €5.")
    await call.says("what does it cost")
    await call.play(10 * WORD_MS)
    assert "euro" in call.tts.spoken[0]
    assert metered_usage(call) == (100, 10, len("It is €5."))


async def test_sentences_that_were_not_queued_are_not_billed(begin: Begin) -> None:
    sentences = ["We open at nine.", "We close at five.", "We rest on Sunday."]
    call = begin(LISTENS, " ".join(sentences), "Yes.")
    await call.says("when do you open")
    await call.play(WORD_MS)
    await call.interrupts()
    await call.stops_speaking("stop")
    await call.play(5 * WORD_MS)
    # The interrupted sentence counts completely, and the one queued behind it.
    assert metered_usage(call)[2] == len("We open at nine.") + len("We close at five.") + len("Yes.")


async def test_a_dropped_speculative_response_is_not_billed(begin: Begin) -> None:
    call = begin(LISTENS, "We open at nine.", "We open at ten.")
    await call.starts_speaking()
    await call.falls_silent("when do you open")
    assert call.tts.spoken == ["We open at nine."]
    assert call.meter.usage() == NO_USAGE
    await call.goes_on()
    await call.stops_speaking("when do you open on Sunday")
    await call.play(10 * WORD_MS)
    assert metered_usage(call) == (100, 10, len("We open at ten."))


async def test_a_used_speculative_response_is_billed_once(begin: Begin) -> None:
    call = begin(LISTENS, "We open at nine.")
    await call.starts_speaking()
    await call.falls_silent("when do you open")
    await call.stops_speaking("when do you open")
    await call.play(10 * WORD_MS)
    assert metered_usage(call) == (100, 10, len("We open at nine."))


async def test_an_apology_is_billed_as_speech(begin: Begin) -> None:
    call = begin(LISTENS, ModelError("broken"))
    await call.says("when do you open")
    await call.play(20 * WORD_MS)
    assert metered_usage(call)[2] == len("Sorry, something went wrong.") + len("Could you say that again?")


async def test_every_sample_fed_to_the_speech_recognizer_counts() -> None:
    meter, streams = UsageMeter(), ScriptedStt("hello")
    inner = streams.open(rate=16000, language=None, on_words=lambda _: None)
    stt = meter.meter_stt(inner, 16000)
    for _ in range(5):
        stt.feed(np.zeros(320, np.int16))
    assert (streams.streams[0].fed, meter.usage().heard_s) == (1600, 0.1)
    stt.reset()
    stt.feed(np.zeros(16, np.int16))
    assert await stt.end_turn() == "hello"
    stt.close()
    assert streams.streams[0].closed
    assert meter.usage().heard_s == 0.101


def test_usage_survives_to_json_and_from_json() -> None:
    usage = CallUsage(61.234, 812, 40, 12.3, 240)
    assert CallUsage.from_json(usage.to_json()) == usage
    assert CallUsage.from_json(None) == NO_USAGE
    assert CallUsage.from_json({"heard_s": 1.5, "of a later version": 3}) == CallUsage(heard_s=1.5)


def test_sums_of_usage_have_no_rounding_drift() -> None:
    total = NO_USAGE
    for _ in range(1000):
        total = total.plus(CallUsage(0.001, 1, 2, 0.1, 3))
    assert total == CallUsage(1.0, 1000, 2000, 100.0, 3000)


async def test_a_token_count_continues_from_the_last_billed_one() -> None:
    meter = UsageMeter()
    given, wasted = meter.new_token_count(), meter.new_token_count()
    given.add_prompt("m", [1, 2, 3])
    wasted.add_prompt("m", [1, 2, 9])
    meter.count_tokens(given)
    meter.count_tokens(given)
    following = meter.new_token_count()
    following.add_prompt("m", [1, 2, 3, 4])
    meter.count_tokens(following)
    assert meter.usage().prompt_tokens == 3 + 1
    assert isinstance(wasted, TokenUsage)
    await settle()


def test_a_billed_token_count_does_not_keep_its_prompt() -> None:
    meter, call = UsageMeter(), list[int]()
    answers = []
    for _ in range(20):
        answers.append(meter.new_token_count())
        call.extend(range(1000))
        answers[-1].add_prompt("m", call)
        meter.count_tokens(answers[-1])
        meter.count_tokens(answers[-1])
    assert meter.usage().prompt_tokens == 20_000
    assert sum(len(each._known_tokens) for each in answers) == 20_000 + 19_000
