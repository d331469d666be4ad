"""Answer detection: what replaces the verdict of a person, and what does not."""

from __future__ import annotations

import pytest

from calls.answer_detection.events import Rule, WindowClosed
from media.call_progress.tones import ToneKind
from tests.calls.answer_detection.answer_simulation import (
    GREETING,
    HUMAN,
    STRONG,
    VOICEMAIL,
    answer,
    partial,
    say,
    speech,
    tone,
)


def test_a_recording_that_goes_on_after_a_pause_replaces_the_person() -> None:
    result = answer(speech(500, 1000), say(2300, 7000, STRONG))
    assert result.kinds == [HUMAN, VOICEMAIL]
    assert result.verdicts[1].replaces is HUMAN


def test_a_recording_of_pieces_replaces_the_person_however_long_its_phrase_takes() -> None:
    pieces = [speech(start, start + 600) for start in range(2300, 7000, 1000)]
    assert answer(speech(500, 1000), *pieces, say(7300, 9500, STRONG)).kinds == [HUMAN, VOICEMAIL]
    assert answer(speech(500, 1000), *pieces[:1], say(7300, 9500, STRONG)).kinds == [HUMAN]


def test_a_person_who_talks_for_long_is_not_replaced_by_one_phrase() -> None:
    pieces = [speech(2500, 4000), speech(4500, 7000), speech(7500, 8500)]
    assert answer(speech(500, 900), *pieces, say(9000, 10_500, "he left it after the beep")).kinds == [HUMAN]


def test_hints_replace_the_person_only_if_the_recording_goes_on_at_once() -> None:
    assert answer(speech(500, 1000), say(2500, 6500, GREETING)).kinds == [HUMAN, VOICEMAIL]
    assert answer(speech(500, 1000), say(4500, 8500, GREETING)).kinds == [HUMAN]


def test_hints_in_a_short_sentence_do_not_replace_the_person() -> None:
    text = "anna's not here leave me your number"
    assert answer(speech(500, 1000), say(2500, 4500, text)).kinds == [HUMAN]


def test_what_a_person_says_after_the_first_reply_does_not_make_a_machine() -> None:
    assert answer(speech(500, 1000), say(5500, 8500, "he said press one or leave it after the beep")).kinds == [HUMAN]


def test_a_beep_does_not_replace_a_person_who_spoke_shortly() -> None:
    assert answer(speech(500, 3500), tone(ToneKind.BEEP, 6000, 6400)).kinds == [HUMAN]


def test_a_beep_replaces_a_person_after_a_hint_or_a_long_greeting() -> None:
    hinted = answer(say(500, 3000, "you have reached the smiths"), tone(ToneKind.BEEP, 6000, 6400))
    assert hinted.kinds == [HUMAN, VOICEMAIL]
    long = answer(speech(500, 7000), tone(ToneKind.BEEP, 9000, 9400), language="xx")
    assert (long.kinds, long.rules[1]) == ([HUMAN, VOICEMAIL], Rule.TONE)


def test_a_beep_does_not_replace_a_person_who_asks() -> None:
    text = "acme good morning anna speaking how can i help you"
    result = answer(speech(500, 7500), partial(7400, text), tone(ToneKind.BEEP, 9000, 9400))
    assert result.kinds == [HUMAN]


@pytest.mark.parametrize("language", ["en", "xx"])
@pytest.mark.parametrize("end", [3500, 8500])
def test_a_beep_before_all_speech_is_no_evidence(language: str, end: float) -> None:
    assert answer(tone(ToneKind.BEEP, 300, 500), speech(1000, end), language=language).kinds == [HUMAN]


def test_after_the_window_nothing_changes() -> None:
    result = answer(speech(500, 1000), say(13_000, 18_000, STRONG), tone(ToneKind.SIT, 19_000, 20_000))
    assert result.kinds == [HUMAN]
    assert isinstance(result.events[-1], WindowClosed)
