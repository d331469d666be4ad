"""Answer detection: when speech is a person, and how soon."""

from __future__ import annotations

import pytest

from calls.answer_detection.detector import TICK_MS
from calls.answer_detection.events import Rule
from media.call_progress.tones import ToneKind
from tests.calls.answer_detection.answer_simulation import (
    HUMAN,
    STRONG,
    VOICEMAIL,
    Input,
    answer,
    final,
    heard,
    partial,
    say,
    speech,
    tone,
)


@pytest.mark.parametrize("length_ms", [200, 450, 900, 1300, 1440])
@pytest.mark.parametrize("language", ["en", "xx"])
def test_a_short_answer_is_a_person_within_two_seconds_of_its_beginning(length_ms: int, language: str) -> None:
    result = answer(speech(1000, 1000 + length_ms), language=language, until_ms=3000)
    assert (result.kinds, result.rules) == ([HUMAN], [Rule.SHORT_ANSWER])
    assert result.verdicts[0].at_ms <= 3000


def test_a_pause_of_half_a_second_makes_no_person() -> None:
    result = answer(speech(500, 900), say(1430, 7000, STRONG))
    assert result.kinds == [VOICEMAIL]


@pytest.mark.parametrize("end", [1990, 2450])
def test_a_short_answer_that_is_too_long_for_a_verdict_in_two_seconds_needs_all_the_quiet(end: float) -> None:
    """A recording of pieces pauses for half a second after the first one: "The person at extension" (1.5 s)."""
    result = answer(speech(500, end, stop_lag_ms=100))
    assert result.rules == [Rule.SHORT_ANSWER]
    assert result.verdicts[0].at_ms >= end + 900


@pytest.mark.parametrize(("quiet_ms", "is_human"), [(1100, False), (1300, True)])
def test_longer_speech_is_a_person_after_longer_quiet(quiet_ms: int, is_human: bool) -> None:
    result = answer(speech(500, 4500), partial(4000, "acme good morning"), until_ms=4500 + quiet_ms)
    assert result.rules == ([Rule.SPEECH_THEN_QUIET] if is_human else [])


@pytest.mark.parametrize(("language", "needed_ms"), [("en", 3000), ("xx", 1200)])
def test_longer_speech_waits_for_the_words_of_a_recognizer_that_lags_behind(language: str, needed_ms: int) -> None:
    result = answer(speech(500, 4500), language=language)
    assert (result.kinds, result.rules) == ([HUMAN], [Rule.SPEECH_THEN_QUIET])
    assert result.verdicts[0].at_ms == pytest.approx(4500 + needed_ms, abs=100)


@pytest.mark.parametrize("late_ms", [1500, 2500])
def test_a_greeting_whose_words_come_late_is_a_voicemail(late_ms: int) -> None:
    assert answer(speech(500, 4500), final(4500 + late_ms, STRONG)).kinds == [VOICEMAIL]


@pytest.mark.parametrize("text", [
    "acme good morning nobody is available to take your call right now can i take a message",
    "no one is available to take calls today",
    "good morning do you want the person at extension twelve",
    "the person at extension twelve is on the phone can i take a message",
    "please stop the recording",
    "the number you've dialed is a private number",
    "sorry what's the number you have dialed",
])  # fmt: skip
def test_a_receptionist_or_a_wrong_number_is_a_person(text: str) -> None:
    assert answer(say(500, 4500, text)).kinds == [HUMAN]
    assert answer(speech(500, 900), say(2500, 6500, text)).kinds == [HUMAN]


def test_words_of_a_listener_shorten_the_wait() -> None:
    result = answer(speech(500, 4500), partial(4400, "acme good morning anna speaking how can i help you"))
    assert (result.kinds, result.rules) == ([HUMAN], [Rule.LIVE_WORDS])
    assert result.verdicts[0].at_ms == pytest.approx(5100, abs=100)


@pytest.mark.parametrize("text", [
    "i'm not available right now can you call later",
    "sorry i can't take your call i'm not available could you call me back in an hour",
    "she's not in the office may i ask who is calling",
    "he's not here right now do you want to leave a message can i take your number",
])  # fmt: skip
def test_a_person_who_says_what_greetings_say_and_asks_back_is_a_person(text: str) -> None:
    assert answer(say(500, 4500, text)).kinds == [HUMAN]


def test_one_hint_is_not_enough_and_delays_the_person() -> None:
    result = answer(speech(500, 2200), partial(2100, "anna is not available"))
    assert (result.kinds, result.rules) == ([HUMAN], [Rule.SPEECH_THEN_QUIET])
    assert result.verdicts[0].at_ms == pytest.approx(2200 + 2000, abs=100)


def test_a_person_who_talks_long_at_once_is_a_person() -> None:
    result = answer(
        speech(300, 15_000), partial(3000, "oh hi i was just about to call you"), final(15_700, "the dishwasher")
    )
    assert (result.kinds, result.rules) == ([HUMAN], [Rule.SPEECH_THEN_QUIET])


def test_speech_without_end_and_without_words_of_a_machine_is_a_person_when_the_window_closes() -> None:
    result = answer(speech(300, None), partial(3000, "the weather is nice"))
    assert (result.kinds, result.rules) == ([HUMAN], [Rule.WINDOW_OVER])
    assert result.closed_ms == 20_000


def test_a_person_does_not_wait_when_voice_activity_detection_misses_the_end() -> None:
    result = answer(speech(500, None), partial(1100, "hello"))
    assert (result.kinds, result.rules) == ([HUMAN], [Rule.GREETING_WORDS])
    assert result.verdicts[0].at_ms == pytest.approx(2350, abs=TICK_MS)


def test_a_person_does_not_wait_when_voice_activity_detection_misses_the_speech() -> None:
    result = answer(partial(1100, "hello anna"))
    assert (result.kinds, result.rules) == ([HUMAN], [Rule.GREETING_WORDS])
    assert result.verdicts[0].at_ms == 2000


def test_words_without_voice_activity_are_no_silence() -> None:
    assert answer(partial(1100, "some words that are no greeting")).kinds == [HUMAN]


def test_the_window_of_a_person_closes_after_two_turns_or_ten_seconds() -> None:
    alone = answer(speech(500, 900))
    assert alone.closed_ms == pytest.approx(1800 + 10_000, abs=100)
    talking = answer(speech(500, 900), speech(4000, 5000), speech(7000, 8000))
    assert talking.closed_ms == pytest.approx(9000, abs=100)


@pytest.mark.parametrize(
    ("inputs", "short"),
    [
        ([speech(500, 1000, 100), final(1150, "hello")], True),
        ([speech(500, 1000, 100)], True),
        ([final(1150, "hello")], True),
        ([], False),
        ([speech(500, None)], False),
        ([speech(500, 1000, 100), final(1150, "you have reached")], False),
        ([speech(500, 1000, 100), final(1150, "please hold")], False),
        ([speech(0, 700, 50), speech(900, 1000, 50), speech(1050, None)], False),
    ],
)
def test_a_short_answer_has_ended_and_has_no_words_of_a_machine(inputs: list[list[Input]], short: bool) -> None:
    assert heard(*inputs, until_ms=1200).is_short_answer is short


def test_longer_speech_is_no_short_answer() -> None:
    assert not heard(speech(500, 2600, 100), final(2750, "this is the bakery"), until_ms=2800).is_short_answer


@pytest.mark.parametrize(
    ("inputs", "unheard_ms"),
    [
        ([], 2500),
        ([tone(ToneKind.RINGBACK, 200, 1200)], 2500 - 1450),
        ([speech(500, 1000)], 0),
        ([final(1000, "hello")], 0),
        ([tone(ToneKind.BEEP, 200, 600)], 0),
    ],
)
def test_what_was_heard_ends_the_time_without_a_sound(inputs: list[list[Input]], unheard_ms: float) -> None:
    assert heard(*inputs, until_ms=2500).unheard_ms == unheard_ms
