"""The listener of an answered call during a hold by a client, on a clock of the test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import pytest

from calls.answer_detection.detector import TICK_MS
from calls.answer_detection.events import AnswerKind
from calls.answer_detection.settings import AnswerDetectionSettings
from calls.session.answer.answer_listener import AnswerListener
from media.audio_port import Samples
from media.call_progress.tones import Tone, ToneKind
from media.engine.call_audio import CallEvent
from media.turn_taking.events import SpeechStarted, TurnEnded
from models.protocols import SpeechToText

VOICEMAIL = "please leave a message after the tone"
MENU = "for sales press one"
ANSWERED_MS = 5000.0


class _Call:
    """An answered call whose time passes by `passes`."""

    def __init__(self) -> None:
        self.now_ms = ANSWERED_MS
        self.held = False
        self.listener = AnswerListener(
            call_id="call",
            settings=AnswerDetectionSettings("en"),
            rate=8000,
            events=self,
            now_ms=lambda: self.now_ms,
            post=self._post,
            on_change=lambda: None,
            is_held=lambda: self.held,
        )

    def on_media_events(self, events: Sequence[CallEvent]) -> None:
        """Nobody else listens."""

    def _post(self, work: Callable[[], None]) -> None:
        work()

    def passes(self, ms: float) -> None:
        """Silence."""
        for _ in range(round(ms / TICK_MS)):
            self.now_ms += TICK_MS
            self.listener.on_tick(self.now_ms, np.zeros(TICK_MS * 8, np.float32), self.now_ms)

    def says(self, words: str) -> None:
        """A turn of half a second has ended."""
        now = self.now_ms
        self.listener.on_media_events([SpeechStarted(now, now - 500), TurnEnded(now, now - 500, now, "model")])
        self.listener.final_text(words)

    def is_held_for(self, ms: float) -> None:
        """A client has the callee on hold."""
        self.held = True
        self.passes(ms)
        self.held = False


def test_quiet_of_a_hold_starts_no_message() -> None:
    call = _Call()
    call.passes(2000)
    call.says(VOICEMAIL)
    call.passes(1000)
    assert call.listener.kind is AnswerKind.VOICEMAIL
    call.is_held_for(10_000)
    call.passes(1800)
    assert not call.listener.message_may_start
    call.passes(400)
    assert call.listener.message_may_start


def test_a_beep_after_a_hold_starts_the_message_at_once() -> None:
    call = _Call()
    call.passes(2000)
    call.says(VOICEMAIL)
    call.passes(1000)
    call.is_held_for(10_000)
    call.passes(800)
    now = call.now_ms
    call.listener._on_tone(now, Tone(ToneKind.BEEP, now - 500, now - 200, now, 1000.0))
    assert call.listener.message_may_start


def test_windows_do_not_go_on_during_holds() -> None:
    call = _Call()
    call.passes(1000)
    call.says(MENU)
    call.passes(20_000)
    call.is_held_for(100_000)
    call.passes(20_000)
    call.is_held_for(100_000)
    call.passes(19_000)
    assert (call.listener.kind, call.listener.closed) == (AnswerKind.MENU, False)
    assert call.listener.listened_ms == pytest.approx(60_000, abs=3 * TICK_MS)
    call.passes(2000)
    assert call.listener.closed


def test_verdicts_after_a_hold_are_stored_with_the_time_since_the_answer() -> None:
    call = _Call()
    call.passes(1000)
    call.is_held_for(30_000)
    call.passes(1000)
    call.says(MENU)
    call.passes(1000)
    (item,) = call.listener.timeline_items()
    assert (item["answer"], item["at_ms"]) == ("menu", pytest.approx(32_300, abs=310))


class _Spotter:
    """A recognizer that spots a phrase once it was fed."""

    name = "spotter"

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.closed = False

    def open_spotter(self, *, rate: int, phrases: Sequence[str], on_phrase: Callable[[str], None]) -> _Spotter:
        assert rate == 8000
        assert "screening service" in phrases
        if self.error is not None:
            raise self.error
        self.on_phrase = on_phrase
        return self

    def feed(self, samples: Samples) -> None:
        self.on_phrase("screening service")

    def close(self) -> None:
        self.closed = True


def test_what_the_recognizer_spots_decides_and_it_is_closed_with_the_listener() -> None:
    call, spotter = _Call(), _Spotter()
    call.listener.spot_phrases(cast(SpeechToText, spotter))
    call.listener.on_media_events([SpeechStarted(call.now_ms, call.now_ms)])
    call.passes(2500)
    assert call.listener.kind is AnswerKind.CALL_SCREENING
    assert not spotter.closed
    call.listener.stop()
    assert spotter.closed


def test_nothing_is_spotted_during_a_hold() -> None:
    call = _Call()
    call.listener.on_media_events([SpeechStarted(call.now_ms, call.now_ms)])
    call.passes(2500)
    call.listener.spot_phrases(cast(SpeechToText, _Spotter()))
    call.is_held_for(5000)
    assert call.listener.kind is None


def test_a_spotter_that_cannot_be_opened_is_done_without() -> None:
    call = _Call()
    call.listener.spot_phrases(cast(SpeechToText, _Spotter(RuntimeError("no model"))))
    call.passes(1000)
    call.says(MENU)
    call.passes(1000)
    assert call.listener.kind is AnswerKind.MENU
