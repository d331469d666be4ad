"""Answer detection: what counts from the answer on, and rules that hold for any sequence of inputs."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from calls.answer_detection.detector import AnswerDetector
from calls.answer_detection.events import AnswerEvent, MessageMayStart, Verdict, WindowClosed
from calls.answer_detection.settings import AnswerDetectionSettings
from media.call_progress.tones import Tone, ToneKind
from tests.calls.answer_detection.answer_simulation import (
    GREETING,
    HUMAN,
    SCREEN,
    STRONG,
    VOICEMAIL,
    answer,
    final,
    partial,
    say,
    speech,
    tone,
)


def test_early_media_does_not_count() -> None:
    early = [*say(500, 5000, STRONG), *tone(ToneKind.SIT, 5500, 6500)]
    assert answer(early, answered_ms=None).events == []
    assert answer(early, speech(9000, 9500), answered_ms=8000).kinds == [HUMAN]


def test_words_and_speech_that_continue_across_the_answer_count_from_there() -> None:
    early = [*speech(500, 8500), *partial(5000, STRONG)]
    result = answer(early, final(9300, f"{STRONG} hello"), answered_ms=8000)
    assert (result.kinds, result.verdicts[0].evidence.detail) == ([HUMAN], "500 ms")


def test_a_tone_of_early_media_does_not_count_when_it_is_found_after_the_answer() -> None:
    assert answer(tone(ToneKind.SIT, 500, 2100), answered_ms=2200, until_ms=5000).events == []


def test_speech_that_is_found_after_the_answer_and_began_before_it_counts() -> None:
    assert answer(speech(900, 1500), answered_ms=950).kinds == [HUMAN]


# Whatever happens


def test_an_input_with_an_earlier_time_counts_as_the_last_one() -> None:
    detector = AnswerDetector(AnswerDetectionSettings())
    detector.answered(1000.0)
    detector.tick(9000.0)
    detector.speech_started(9100.0, 9050.0)
    [verdict] = detector.final_text(8000.0, "for sales press one")
    assert verdict.at_ms == 9100.0


TEXTS = (STRONG, GREETING, SCREEN, "hello", "press one", "your call is important to us", "how can i help you", "")


def random_input(rng: random.Random, now: float) -> Callable[[AnswerDetector], list[AnswerEvent]]:
    at = now - rng.choice((0, 0, 0, 50, 700))
    past = now - rng.uniform(0, 3000)
    text = rng.choice(TEXTS)
    found = Tone(rng.choice(list(ToneKind)), past, past + rng.uniform(0, 2000), now, 1000.0)
    choices: list[Callable[[AnswerDetector], list[AnswerEvent]]] = [
        lambda detector: detector.speech_started(at, past),
        lambda detector: detector.speech_stopped(at, past),
        lambda detector: detector.partial_text(at, text),
        lambda detector: detector.final_text(at, text),
        lambda detector: detector.answered(at),
        lambda detector: detector.tone(at, found),
        lambda detector: detector.listening_again(at),
        lambda detector: detector.recognizer_failed(at),
    ]
    return rng.choices(choices, weights=(5, 5, 5, 3, 1, 1, 1, 0.2))[0]


@pytest.mark.parametrize("seed", range(300))
def test_any_sequence_has_one_verdict_at_a_time_and_an_end(seed: int) -> None:
    rng = random.Random(seed)
    detector = AnswerDetector(AnswerDetectionSettings(rng.choice(("en", "de", "xx", None))))
    events: list[AnswerEvent] = []
    now = 0.0
    for _ in range(rng.randrange(120)):
        now += rng.uniform(0, 800)
        events += random_input(rng, now)(detector)
        events += detector.tick(now)
    events += detector.answered(now)
    while now < 1_300_000 and not detector.closed:
        now += 500
        events += detector.tick(now)
    assert detector.closed
    assert [isinstance(event, WindowClosed) for event in events].count(True) == 1
    assert isinstance(events[-1], WindowClosed)
    verdicts = [event for event in events if isinstance(event, Verdict)]
    assert verdicts
    assert [verdict.replaces for verdict in verdicts] == [None, *(verdict.kind for verdict in verdicts[:-1])]
    assert all(verdict.kind is not verdict.replaces for verdict in verdicts)
    assert events[-1].kind is verdicts[-1].kind
    assert [event.at_ms for event in events] == sorted(event.at_ms for event in events)
    messages = [event for event in events if isinstance(event, MessageMayStart)]
    assert len(messages) <= (verdicts[-1].kind is VOICEMAIL)
