"""Answer detection: what may follow a menu, a queue or a call screening."""

from __future__ import annotations

import pytest

from calls.answer_detection.detector import TICK_MS
from calls.answer_detection.events import AnswerKind, Rule
from media.call_progress.tones import ToneKind
from tests.calls.answer_detection.answer_simulation import (
    GREETING,
    HOLD,
    HUMAN,
    MENU,
    SCREEN,
    SCREENING,
    VOICEMAIL,
    answer,
    failed,
    final,
    listening_again,
    partial,
    say,
    speech,
    tone,
)


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


def test_a_short_new_turn_without_words_is_a_person_after_a_fault_of_the_recognizer_alone() -> None:
    queue, hello = say(500, 4000, "all our agents are busy"), speech(9000, 9600)
    assert answer(queue, hello).kinds == [HOLD]
    assert answer(queue, hello, failed(7000)).kinds == [HOLD, HUMAN]
    assert answer(queue, hello, failed(14_600)).kinds == [HOLD, HUMAN]
    assert answer(queue, speech(9000, 13_000), failed(7000)).kinds == [HOLD]
