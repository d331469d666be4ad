"""Answer detection: tones, music and silence."""

from __future__ import annotations

import pytest

from calls.answer_detection.detector import TICK_MS
from calls.answer_detection.events import AnswerKind, MessageMayStart, Rule
from media.call_progress.tones import ToneKind
from tests.calls.answer_detection.answer_simulation import (
    FAX,
    HOLD,
    HUMAN,
    SILENCE,
    UNAVAILABLE,
    VOICEMAIL,
    answer,
    partial,
    say,
    sound,
    speech,
    tone,
    without_ticks,
)


@pytest.mark.parametrize(("kind", "expected"), [
    (ToneKind.CED, FAX), (ToneKind.CNG, FAX), (ToneKind.SIT, UNAVAILABLE), (ToneKind.BUSY, UNAVAILABLE),
])  # fmt: skip
def test_tones_that_decide_and_close_the_window(kind: ToneKind, expected: AnswerKind) -> None:
    result = answer(tone(kind, 500, 2100))
    assert (result.kinds, result.rules, result.closed_ms) == ([expected], [Rule.TONE], 2350)


@pytest.mark.parametrize("heard_as_speech", [False, True])
def test_a_beep_alone_is_a_voicemail_after_two_seconds_of_quiet(heard_as_speech: bool) -> None:
    result = answer(tone(ToneKind.BEEP, 500, 900, heard_as_speech=heard_as_speech))
    assert (result.kinds, result.rules) == ([VOICEMAIL], [Rule.TONE])
    assert result.verdicts[0].at_ms == pytest.approx(2900, abs=100)


def test_speech_after_a_first_beep_is_judged_as_usual() -> None:
    assert answer(tone(ToneKind.BEEP, 500, 900), speech(1500, 2000)).kinds == [HUMAN]


def test_a_beep_after_a_greeting_is_a_voicemail_at_once() -> None:
    result = answer(speech(500, 4000), tone(ToneKind.BEEP, 4500, 4900), language="xx")
    assert [verdict.at_ms for verdict in result.verdicts] == [5150]
    assert result.message == MessageMayStart(5150, "beep")


ASTERISK_PIECES = ((360, 1945), (2440, 2925), (3280, 3730), (4100, 4645), (4960, 5930))
"""When Asterisk says "The person at extension", "six", "two", "one", "is unavailable"."""


@pytest.mark.parametrize("words", ["", "the girl kinetic pension make taylor or one"])
def test_a_greeting_of_pieces_is_no_person_before_its_beep(words: str) -> None:
    pieces = [speech(start, end, 95) for start, end in ASTERISK_PIECES]
    result = answer(*pieces, partial(5800, words), tone(ToneKind.BEEP, 6020, 6460))
    assert (result.kinds, result.rules) == ([VOICEMAIL], [Rule.TONE])


def test_a_beep_after_a_short_greeting_with_a_hint_is_a_voicemail_at_once() -> None:
    result = answer(speech(500, 1700), partial(1600, "leave me a message"), tone(ToneKind.BEEP, 1900, 2100))
    assert (result.kinds, result.rules) == ([VOICEMAIL], [Rule.TONE])


def test_a_beep_after_the_question_of_a_person_is_no_voicemail() -> None:
    result = answer(speech(500, 3500), partial(3400, "anna speaking how can i help"), tone(ToneKind.BEEP, 3600, 3800))
    assert result.kinds == [HUMAN]


@pytest.mark.parametrize("heard_as_speech", [False, True])
def test_a_ringback_tone_delays_the_silence(heard_as_speech: bool) -> None:
    rings = [tone(ToneKind.RINGBACK, at, at + 1000, heard_as_speech=heard_as_speech) for at in (500, 5500, 10_500)]
    result = answer(*rings, speech(16_000, 16_400))
    assert result.kinds == [HUMAN]


def test_a_ringback_tone_without_end_closes_the_window() -> None:
    rings = [tone(ToneKind.RINGBACK, at, at + 1000) for at in range(500, 250_000, 5000)]
    result = answer(*rings, until_ms=250_000)
    assert (result.kinds, result.closed_ms) == ([SILENCE], 180_000)


def test_ten_seconds_without_speech_are_silence() -> None:
    result = answer()
    assert (result.kinds, result.rules) == ([SILENCE], [Rule.NO_SPEECH])
    assert (result.verdicts[0].at_ms, result.closed_ms) == (10_000, 20_000)


def test_a_person_may_speak_after_the_silence() -> None:
    assert answer(speech(12_000, 12_500)).kinds == [SILENCE, HUMAN]


def test_sound_without_speech_is_the_music_of_a_queue() -> None:
    detector = without_ticks(sound(200, 3000))
    assert detector.verdict is not None
    assert (detector.verdict.kind, detector.verdict.evidence.rule) == (AnswerKind.HOLD_QUEUE, Rule.MUSIC)
    assert detector.verdict.at_ms == pytest.approx(2700, abs=TICK_MS)
    assert detector.unheard_ms == 0


def test_a_person_after_the_music_is_a_person() -> None:
    detector = without_ticks(sound(200, 9000), say(10_000, 10_600, "hello"), sound(11_000, 12_500))
    assert detector.verdict is not None
    assert (detector.verdict.kind, detector.verdict.replaces) == (HUMAN, HOLD)


def test_sound_that_stops_is_no_music_and_time_without_a_sound_goes_on() -> None:
    detector = without_ticks(sound(200, 2000))
    assert detector.unheard_ms == 0, "it may become music"
    detector.tick(3100, 0)
    assert (detector.verdict, detector.unheard_ms) == (None, 3100)


def test_speech_in_sound_is_no_music() -> None:
    detector = without_ticks(sound(200, 4000), speech(1000, None))
    assert detector.verdict is None
