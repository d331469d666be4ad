"""Answer detection: each rule, by tables of timed inputs."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from calls.answer_detection.detector import TICK_MS, AnswerDetector
from calls.answer_detection.events import AnswerEvent, AnswerKind, MessageMayStart, Rule, Verdict, WindowClosed
from calls.answer_detection.settings import AnswerDetectionSettings
from media.call_progress.tones import Tone, ToneKind
from tests.calls.answer_detection.answer_simulation import Input, answer, final, partial, say, speech, tone

HUMAN, VOICEMAIL, SILENCE = AnswerKind.HUMAN, AnswerKind.VOICEMAIL, AnswerKind.SILENCE
SCREENING, MENU, HOLD = AnswerKind.CALL_SCREENING, AnswerKind.MENU, AnswerKind.HOLD_QUEUE
UNAVAILABLE, FAX = AnswerKind.MAILBOX_UNAVAILABLE, AnswerKind.FAX
GREETING = "you've reached anna i can't come to the phone right now please leave a message"
STRONG = f"{GREETING} after the tone"


# People


@pytest.mark.parametrize("length_ms", [200, 450, 900, 1500, 1590])
@pytest.mark.parametrize("language", ["en", "xx"])
def test_a_short_answer_is_a_person_within_two_seconds_of_its_beginning(length_ms: int, language: str) -> None:
    result = answer(speech(1000, 1000 + length_ms), language=language, until_ms=3000)
    assert (result.kinds, result.rules) == ([HUMAN], [Rule.SHORT_ANSWER])
    assert result.verdicts[0].at_ms <= 3000


def test_a_pause_of_half_a_second_makes_no_person() -> None:
    result = answer(speech(500, 900), say(1430, 7000, STRONG))
    assert result.kinds == [VOICEMAIL]


def test_a_short_answer_of_nearly_two_seconds_needs_some_quiet_too() -> None:
    result = answer(speech(500, 2450, stop_lag_ms=100))
    assert result.rules == [Rule.SHORT_ANSWER]
    assert result.verdicts[0].at_ms >= 2450 + 400


@pytest.mark.parametrize(("quiet_ms", "is_human"), [(1100, False), (1300, True)])
def test_longer_speech_is_a_person_after_longer_quiet(quiet_ms: int, is_human: bool) -> None:
    result = answer(speech(500, 4500), until_ms=4500 + quiet_ms)
    assert result.rules == ([Rule.SPEECH_THEN_QUIET] if is_human else [])


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


# Machines


@pytest.mark.parametrize(("text", "kind"), [
    (STRONG, VOICEMAIL),
    ("your call has been forwarded to an automated voice messaging system", VOICEMAIL),
    ("hey it's lucy wait for the beep", VOICEMAIL),
    ("the person at extension six two zero is unavailable", VOICEMAIL),
    ("the mailbox is full and cannot accept any messages", UNAVAILABLE),
    ("the number you have dialed is not in service", UNAVAILABLE),
    ("hi if you record your name and reason for calling i'll see if this person is available", SCREENING),
    ("please say your name and why you're calling", SCREENING),
    ("for sales press one for support press two", MENU),
    ("please listen carefully as our menu options have changed", MENU),
    ("all of our agents are currently busy", HOLD),
    ("your call is important to us please stay on the line", HOLD),
])  # fmt: skip
def test_a_phrase_of_machines_decides(text: str, kind: AnswerKind) -> None:
    result = answer(say(500, 6000, text), until_ms=7000)
    assert (result.kinds, result.rules) == ([kind], [Rule.PHRASE])


def test_a_phrase_in_a_partial_text_decides_when_it_is_stable() -> None:
    words = "please leave a message after the tone"
    assert answer(speech(500, None), partial(4000, words), partial(4200, "please leave"), until_ms=8000).kinds == []
    result = answer(speech(500, None), partial(4000, words), until_ms=8000)
    assert [verdict.at_ms for verdict in result.verdicts] == [pytest.approx(4300, abs=TICK_MS)]


def test_two_hints_are_a_voicemail_when_the_speech_ends_or_is_long() -> None:
    short = answer(say(500, 3000, "you've reached tom leave your name and number"), until_ms=5000)
    assert (short.kinds, short.rules) == ([VOICEMAIL], [Rule.HINTS])
    long = answer(speech(500, None), partial(2000, GREETING), until_ms=6000)
    assert [verdict.at_ms for verdict in long.verdicts] == [pytest.approx(4500, abs=TICK_MS)]


def test_hints_wait_for_what_a_person_may_still_ask() -> None:
    text = "i'm not available right now leave me your number"
    result = answer(speech(500, 4200), partial(3000, text), final(4500, f"{text} or can you call later"))
    assert result.kinds == [HUMAN]


def test_a_voicemail_that_ends_with_a_menu_is_a_voicemail() -> None:
    text = "leave a message after the tone when you are finished hang up or press one for more options"
    assert answer(say(500, 6000, text)).kinds == [VOICEMAIL]


def test_a_voicemail_found_by_hints_stays_one_when_a_menu_follows() -> None:
    greeting = f"{GREETING} or press one for more options"
    assert answer(speech(500, 9000), partial(2000, GREETING), partial(7000, greeting)).rules == [Rule.HINTS]


def test_a_person_who_asks_for_the_name_is_no_screening() -> None:
    assert answer(say(500, 3000, "who's calling please and what is the reason for your call")).kinds == [HUMAN]


@pytest.mark.parametrize(("language", "text", "kind"), [
    ("de-DE", "Bitte hinterlassen Sie eine Nachricht nach dem Signalton.", VOICEMAIL),
    ("de", "für Fragen drücken Sie die Eins", MENU),
    ("fr", "laissez un message après le bip", VOICEMAIL),
    ("fr", "dites votre nom et le motif de votre appel", SCREENING),
    ("es", "deje su mensaje después de la señal", VOICEMAIL),
    ("es-MX", "el teléfono está apagado o fuera de cobertura", UNAVAILABLE),
    ("it", "lasciate un messaggio dopo il segnale acustico", VOICEMAIL),
    ("it", "tutti i nostri operatori sono occupati", HOLD),
    ("nl", "spreek een bericht in na de piep", VOICEMAIL),
    ("nl", "voor afspraken toets één", MENU),
    ("pt-BR", "deixe seu recado após o sinal", VOICEMAIL),
    ("pt", "prima a tecla um", MENU),
    (None, "leave a message after the beep", VOICEMAIL),
])  # fmt: skip
def test_phrases_of_each_language(language: str | None, text: str, kind: AnswerKind) -> None:
    assert answer(say(500, 5000, text), language=language).kinds[0] is kind


def test_phrases_match_whole_words() -> None:
    assert answer(say(500, 3000, "the stone is at the tones of the beepers")).kinds == [HUMAN]


def test_long_speech_is_a_voicemail_by_its_cadence_only_where_words_are_not_known() -> None:
    assert answer(speech(500, 13_000), language="xx").rules == [Rule.CADENCE]
    assert answer(speech(500, 13_000), language="en").rules == [Rule.CADENCE]
    assert answer(speech(500, 13_000), partial(2000, "well you know"), language="en").kinds == [HUMAN]


def test_a_pause_ends_the_cadence_of_a_greeting() -> None:
    assert answer(speech(500, 6000), speech(7050, 13_500), language="xx").kinds == [HUMAN]
    assert answer(speech(500, 6000), speech(6900, 13_500), language="xx").kinds == [VOICEMAIL]


# Corrections


def test_a_recording_that_goes_on_after_a_pause_replaces_the_person() -> None:
    result = answer(speech(500, 1000), say(2300, 7000, STRONG))
    assert result.kinds == [HUMAN, VOICEMAIL]
    assert result.verdicts[1].replaces is HUMAN


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


# Tones


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


# Silence


def test_ten_seconds_without_speech_are_silence() -> None:
    result = answer()
    assert (result.kinds, result.rules) == ([SILENCE], [Rule.NO_SPEECH])
    assert (result.verdicts[0].at_ms, result.closed_ms) == (10_000, 20_000)


def test_a_person_may_speak_after_the_silence() -> None:
    assert answer(speech(12_000, 12_500)).kinds == [SILENCE, HUMAN]


# Screening, menus and queues

SCREEN = "record your name and reason for calling and i'll see if this person is available"


@pytest.mark.parametrize(("first", "kind"), [
    (SCREEN, SCREENING), ("for sales press one", MENU), ("your call is important to us", HOLD),
])  # fmt: skip
@pytest.mark.parametrize(("text", "then"), [
    ("hello", HUMAN),
    ("hello this is anna thank you for holding how can i help you", HUMAN),
    ("please leave a message after the tone", VOICEMAIL),
])  # fmt: skip
def test_a_person_or_a_voicemail_may_follow(first: str, kind: AnswerKind, text: str, then: AnswerKind) -> None:
    end = 10_500 if text == "hello" else 14_000
    assert answer(say(500, 5000, first), say(10_000, end, text)).kinds == [kind, then]


def test_the_words_of_a_queue_again_are_the_queue() -> None:
    announcement = "all our agents are busy please stay on the line"
    result = answer(say(500, 4000, announcement), say(20_000, 23_500, announcement), say(40_000, 43_500, announcement))
    assert result.kinds == [HOLD]


def test_hints_or_a_hint_with_a_beep_are_the_voicemail_that_follows() -> None:
    hints = answer(say(500, 5000, SCREEN), say(10_000, 14_000, GREETING))
    assert (hints.kinds, hints.rules[1]) == ([SCREENING, VOICEMAIL], Rule.HINTS)
    text = "sorry i missed your call"
    beep = answer(say(500, 5000, SCREEN), say(10_000, 12_500, text), tone(ToneKind.BEEP, 13_500, 13_900))
    assert (beep.kinds, beep.rules[1]) == ([SCREENING, VOICEMAIL], Rule.TONE)


def test_a_beep_in_a_queue_is_no_voicemail() -> None:
    queue, beep = say(500, 4000, "your call is important to us"), tone(ToneKind.BEEP, 16_000, 16_400)
    assert answer(queue, beep).kinds == [HOLD]
    assert answer(queue, say(9000, 15_000, "visit our web site"), beep).kinds == [HOLD]


def test_long_unknown_speech_in_a_queue_is_no_person() -> None:
    assert answer(say(500, 4000, "your call is important to us"), say(9000, 15_000, "visit our web site")).kinds == [
        HOLD
    ]


def test_music_that_passes_for_speech_is_no_person_and_hides_none() -> None:
    queue, music = say(500, 4000, "your call is important to us"), [speech(at, at + 700) for at in (9000, 15_000)]
    assert answer(queue, *music).kinds == [HOLD]
    assert answer(queue, *music, say(20_000, 20_600, "hello")).kinds == [HOLD, HUMAN]


def test_the_rest_of_a_menu_is_no_person() -> None:
    said = partial(3000, "for orders press one")
    rest = final(4900, "for orders press one for all the rest stay here")
    assert answer(speech(500, 3600), speech(3900, 4500), said, rest).kinds == [MENU]


def test_a_person_may_follow_a_menu_at_once() -> None:
    menu = answer(say(500, 4000, "for orders press one"), say(5100, 5700, "hello"))
    assert menu.kinds == [MENU, HUMAN]


def failed(at: float) -> list[Input]:
    """The recognizer fails."""
    return [(at, lambda detector, now: detector.recognizer_failed(now))]


def listening_again(at: float) -> list[Input]:
    """A hold ends, in which the clock stood still."""
    return [(at, lambda detector, now: detector.listening_again(now))]


def test_a_short_new_turn_without_words_is_a_person_after_a_fault_of_the_recognizer_alone() -> None:
    queue, hello = say(500, 4000, "all our agents are busy"), speech(9000, 9600)
    assert answer(queue, hello).kinds == [HOLD]
    assert answer(queue, hello, failed(7000)).kinds == [HOLD, HUMAN]
    assert answer(queue, hello, failed(14_600)).kinds == [HOLD, HUMAN]
    assert answer(queue, speech(9000, 13_000), failed(7000)).kinds == [HOLD]


def test_the_cadence_decides_after_a_fault_of_the_recognizer() -> None:
    result = answer(partial(2000, "welcome"), speech(1000, None), failed(3000))
    assert (result.kinds, result.rules) == ([VOICEMAIL], [Rule.CADENCE])


def test_a_turn_after_a_hold_is_a_new_one() -> None:
    menu = say(500, 4000, "for orders press one")
    hello = say(4900, 5500, "hello")
    assert answer(menu, hello).kinds == [MENU]
    assert answer(menu, listening_again(4500), hello).kinds == [MENU, HUMAN]


def test_a_screening_that_asks_to_wait_is_still_a_screening() -> None:
    result = answer(say(500, 5000, SCREEN), say(10_000, 11_500, "thanks please stay on the line"), until_ms=40_000)
    assert result.kinds == [SCREENING]


def test_a_queue_may_take_ten_minutes() -> None:
    busy = "all our agents are busy"
    result = answer(say(500, 4000, busy), say(500_000, 502_000, "hello how can i help you"), until_ms=520_000)
    assert result.kinds == [HOLD, HUMAN]


@pytest.mark.parametrize(("text", "kind", "closes_ms"), [
    (SCREEN, SCREENING, 60_000), ("for sales press one", MENU, 60_000), ("all our agents are busy", HOLD, 600_000),
])  # fmt: skip
def test_their_windows_close(text: str, kind: AnswerKind, closes_ms: float) -> None:
    result = answer(say(500, 5000, text), until_ms=700_000)
    assert (result.kinds, result.closed_ms) == (
        [kind],
        pytest.approx(result.verdicts[0].at_ms + closes_ms, abs=TICK_MS),
    )


# Messages


def test_a_message_may_start_after_the_beep() -> None:
    result = answer(say(500, 6000, STRONG), tone(ToneKind.BEEP, 7000, 7400))
    assert result.message == MessageMayStart(7650, "beep")
    assert result.closed_ms == 7650


def test_a_message_may_start_after_two_seconds_of_quiet() -> None:
    result = answer(say(500, 6000, STRONG))
    assert result.message == MessageMayStart(8000, "quiet")


def test_quiet_before_a_hold_starts_no_message() -> None:
    result = answer(say(500, 6000, STRONG), listening_again(7500))
    assert result.message is not None
    assert (result.message.at_ms, result.message.reason) == (pytest.approx(9500, abs=TICK_MS), "quiet")


def test_a_beep_before_a_hold_starts_no_message() -> None:
    greeting = partial(4000, STRONG)
    result = answer(tone(ToneKind.BEEP, 100, 500), speech(1200, 8000), greeting, listening_again(9000))
    assert result.message is not None
    assert (result.message.at_ms, result.message.reason) == (pytest.approx(11_000, abs=TICK_MS), "quiet")


def test_a_beep_before_the_greeting_starts_no_message() -> None:
    result = answer(tone(ToneKind.BEEP, 300, 500), say(1000, 6000, STRONG))
    assert result.message == MessageMayStart(8000, "quiet")


def test_a_full_mailbox_takes_no_message() -> None:
    result = answer(say(500, 4000, STRONG), say(4600, 7000, "the mailbox is full"))
    assert (result.kinds, result.message) == ([VOICEMAIL, UNAVAILABLE], None)


def test_a_greeting_that_never_ends_closes_the_window_without_a_message() -> None:
    result = answer(speech(500, None), partial(3000, STRONG), until_ms=70_000)
    assert (result.kinds, result.message, result.closed_ms) == ([VOICEMAIL], None, pytest.approx(63_300, abs=TICK_MS))


# Before the answer


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


def sound(start: float, end: float) -> list[Input]:
    """Uninterrupted sound in which voice activity detection finds no speech."""
    times = range(round(start), round(end) + 1, TICK_MS)
    return [(at, lambda detector, now: detector.tick(now, now - start)) for at in times]


def without_ticks(*inputs: list[Input], language: str | None = "en") -> AnswerDetector:
    """A call, answered at 0, whose ticks are among its inputs."""
    detector = AnswerDetector(AnswerDetectionSettings(language))
    detector.answered(0)
    for at, put in sorted((each for some in inputs for each in some), key=lambda each: each[0]):
        put(detector, at)
    return detector


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


def heard(*inputs: list[Input], until_ms: float) -> AnswerDetector:
    """A detector that was answered at 0 and has got the inputs until then."""
    detector = AnswerDetector(AnswerDetectionSettings("en"))
    detector.answered(0)
    for at, put in sorted([each for some in inputs for each in some], key=lambda each: each[0]):
        if at <= until_ms:
            put(detector, at)
    detector.tick(until_ms)
    return detector


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
