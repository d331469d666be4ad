"""Answer detection: when a message may start."""

from __future__ import annotations

import pytest

from calls.answer_detection.detector import TICK_MS
from calls.answer_detection.events import MessageMayStart
from media.call_progress.tones import ToneKind
from tests.calls.answer_detection.answer_simulation import (
    STRONG,
    UNAVAILABLE,
    VOICEMAIL,
    answer,
    listening_again,
    partial,
    say,
    speech,
    tone,
)


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
