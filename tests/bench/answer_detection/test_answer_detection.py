"""The made calls of the benchmark of answer detection, and its figures."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from bench.answer_detection import sounds
from bench.answer_detection.corpus import Call, Say, corpus
from bench.answer_detection.report import connected, headline, messages, upper_bound, waiting
from bench.answer_detection.runner import ScriptedRecognizer, hear, judge
from bench.answer_detection.synthesis import CallAudio, CallSynthesis, SpokenWord
from calls.answer_detection.events import AnswerKind
from media.audio_port import Samples


@pytest.mark.parametrize(("failures", "n", "bound"), [(0, 1, 0.95), (0, 100, 0.0295), (1, 100, 0.0466), (5, 5, 1.0)])
def test_the_upper_bound_is_that_of_clopper_and_pearson(failures: int, n: int, bound: float) -> None:
    assert upper_bound(failures, n) == pytest.approx(bound, abs=0.0001)


def test_the_corpus_is_large_and_always_the_same() -> None:
    calls = corpus()
    assert len(calls) >= 400
    assert sum(call.is_human for call in calls) >= 300
    assert calls == corpus()
    assert [call.number for call in calls] == list(range(len(calls)))
    assert {kind for call in calls for kind in call.expected} == set(AnswerKind)


def first_texts(calls: list[Call], split: str) -> set[str]:
    spoken = (next((part.text for part in call.parts if isinstance(part, Say)), "") for call in calls)
    return {text for call, text in zip(calls, spoken, strict=True) if call.split == split and " " in text}


def test_held_out_texts_are_not_development_texts() -> None:
    calls = corpus()
    assert first_texts(calls, "development")
    assert not first_texts(calls, "development") & first_texts(calls, "held-out")


async def rendered(call: Call) -> CallAudio:
    synthesis = await asyncio.to_thread(CallSynthesis)
    audio = await synthesis.render(call)
    await asyncio.to_thread(synthesis.close)
    return audio


async def test_a_call_sounds_the_same_each_time() -> None:
    call = next(call for call in corpus() if call.scenario == "voicemail" and call.language == "de")
    audio = [await rendered(call) for _ in range(2)]
    np.testing.assert_array_equal(audio[0].samples, audio[1].samples)
    assert audio[0].words == audio[1].words


def call_of(scenario: str, language: str) -> Call:
    return next(call for call in corpus() if (call.scenario, call.language) == (scenario, language))


@pytest.mark.parametrize(("scenario", "with_words"), [("short_answer", False), ("voicemail", True)])
async def test_a_call_is_heard_and_judged(scenario: str, with_words: bool) -> None:
    call = call_of(scenario, "de")
    audio = await rendered(call)
    outcome = judge(await hear(call, audio, ScriptedRecognizer(audio.words)), with_words=with_words)
    assert tuple(verdict.kind for verdict in outcome.verdicts) == call.expected
    assert outcome.decided_ms() is not None


async def test_the_scripted_recognizer_knows_the_words_that_have_ended() -> None:
    recognizer = ScriptedRecognizer([SpokenWord("guten", 500.0), SpokenWord("Tag", 900.0), SpokenWord("ja", 2000.0)])
    assert await recognizer.partial(600.0) == "guten"
    assert await recognizer.end_turn(1000.0) == "guten Tag"
    assert await recognizer.end_turn(3000.0) == "ja"


def test_a_narrow_line_has_the_telephones_band() -> None:
    def level(samples: Samples) -> float:
        return float(np.sqrt((samples.astype(np.float64) ** 2).mean()))

    low, middle = (sounds.line(sounds.tone(500, hz), 8000) for hz in (100, 1000))
    assert level(middle) > 3000
    assert level(low) < 0.02 * level(middle)


def test_figures_of_few_calls_are_given_too() -> None:
    assert headline([]) == "humans taken for machines: 0/0, at most 100.0 % with 95 % confidence"
    assert waiting([]) == (
        "wait after the end of a person's speech - s, from the beginning of a short answer - s, 0 of 0 within 2 s"
    )
    assert connected([]) == "voicemails, announcements and faxes that are a person first: 0 of 0"
    assert messages([]) == "a message was started in 0 of 0 calls that a voicemail answered"
