"""Listens to the callee of an answered call: feeds answer detection with voice activity, words and tones, and reports
its verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import structlog

from calls import metrics
from calls.answer_detection.detector import TICK_MS, AnswerDetector
from calls.answer_detection.events import AnswerEvent, AnswerKind, MessageMayStart, Verdict
from calls.answer_detection.phrases.languages import spotted_phrases
from calls.answer_detection.settings import AnswerDetectionSettings
from media.audio_port import Samples
from media.call_progress.detector import CallProgressDetector
from media.call_progress.tones import Tone
from media.engine.call_audio import CallEvent, CallEventListener
from media.turn_taking.events import (
    AgentStarted,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    TurnDropped,
    TurnEnded,
)
from models.protocols import PhraseSpotter, SpeechToText, SpotsPhrases

MACHINES: Final = frozenset({AnswerKind.VOICEMAIL, AnswerKind.MAILBOX_UNAVAILABLE, AnswerKind.FAX})
"""Nobody can be talked to."""

Post = Callable[[Callable[[], None]], object]
"""Runs a function on the event loop: `loop.call_soon_threadsafe`."""

log = structlog.get_logger()


class AnswerListener:
    """The listener of a call's events, which it passes on to `events`, and the monitor of its audio, in one answered
    call at `rate` Hz. `on_change` is called on the event loop when any of its properties may have changed. `now_ms` is
    the engine's clock. While `is_held` nothing is listened to, and time does not count: the detector's clock stands
    still."""

    def __init__(
        self,
        *,
        call_id: str,
        settings: AnswerDetectionSettings,
        rate: int,
        events: CallEventListener,
        now_ms: Callable[[], float],
        post: Post,
        on_change: Callable[[], None],
        is_held: Callable[[], bool],
    ) -> None:
        self.events = events
        self.message_may_start = False
        """The voicemail records."""
        self.turn_is_reply = False
        """The last turn of the callee began after the agent had become audible."""
        self._settings = settings
        self._detector = AnswerDetector(settings)
        self._tones = CallProgressDetector(rate)
        self._spotter: PhraseSpotter | None = None
        self._rate = rate
        self._ms_per_sample = 1000 / rate
        self._fed = 0  # samples; belongs to the tick thread, as the next two
        self._next_tick_ms = 0.0
        self._stopped = False
        self._now_ms = now_ms
        self._post = post
        self._on_change = on_change
        self._is_held = is_held
        self._held_since_ms: float | None = None
        self._held_ms = 0.0
        """Total time of the holds that are over."""
        self._verdicts: list[Verdict] = []
        """Their times are on the engine's clock."""
        self._agent_started_ms: float | None = None
        self._turn_over = False
        self._log = log.bind(call_id=call_id)
        self._answered_ms = now_ms()
        self._detector.answered(self._answered_ms)

    @property
    def kind(self) -> AnswerKind | None:
        """The present verdict; None before the first."""
        return self._verdicts[-1].kind if self._verdicts else None

    @property
    def agent_started(self) -> bool:
        """The agent has become audible."""
        return self._agent_started_ms is not None

    @property
    def closed(self) -> bool:
        """The verdict is final."""
        return self._detector.closed

    @property
    def is_short_answer(self) -> bool:
        """There is no verdict, and the callee's only turn was short and without words of a machine."""
        return self.kind is None and self._turn_over and self._detector.is_short_answer

    @property
    def unheard_ms(self) -> float:
        """Time in which nothing was heard since the answer, or since the last ring of a ringback tone; 0 once
        something was."""
        return self._detector.unheard_ms

    @property
    def listened_ms(self) -> float:
        """Time since the answer, without holds."""
        now_ms = self._now_ms() if self._held_since_ms is None else self._held_since_ms
        return now_ms - self._held_ms - self._answered_ms

    def spot_phrases(self, recognizer: SpeechToText) -> None:
        """Spot phrases of machines, too, if the recognizer can: in noise it may miss them. An error is logged."""
        phrases = spotted_phrases(self._settings.language)
        if not phrases or not isinstance(recognizer, SpotsPhrases):
            return
        try:
            self._spotter = recognizer.open_spotter(
                rate=self._rate, phrases=tuple(phrases), on_phrase=self._phrase_spotted
            )
        except Exception as error:  # noqa: BLE001 - whatever the model raises: the call does without
            self._log.warning("call.phrases_not_spotted", error=repr(error))

    def timeline_items(self) -> list[dict[str, Any]]:
        """The verdicts as they are stored, without words: ms since the answer."""
        return [
            {
                "answer": verdict.kind.value,
                "rule": verdict.evidence.rule.value,
                "at_ms": round(verdict.at_ms - self._answered_ms),
            }
            for verdict in self._verdicts
        ]

    def stop(self) -> None:
        """Listen no longer. Idempotent."""
        if not self._stopped:
            self._stopped = True
            if self._spotter is not None:
                self._spotter.close()
            metrics.ANSWERS.labels(kind=self.kind or "unknown").inc()

    # On the event loop.

    def on_media_events(self, events: Sequence[CallEvent]) -> None:
        """See `CallEventListener`."""
        for event in events:
            self._take(self._detect(event))
            if isinstance(event, SpeechStarted | SpeechResumed):
                self._turn_over = False
                self._on_change()
        self.events.on_media_events(events)

    def final_text(self, text: str) -> None:
        """The words of a turn that has ended."""
        if text:
            self._turn_over = True
            self._take(self._detector.final_text(self._unheld(self._now_ms()), text))
            self._on_change()

    def _detect(self, event: CallEvent) -> Sequence[AnswerEvent]:
        detector = self._detector
        now_ms = self._unheld(event.at_ms)
        held_ms = event.at_ms - now_ms
        match event:
            case SpeechStarted(speech_start_ms=start_ms):
                return detector.speech_started(now_ms, start_ms - held_ms)
            case SpeechResumed():
                return detector.speech_started(now_ms, now_ms)
            case SpeechStopped(speech_end_ms=end_ms):
                return detector.speech_stopped(now_ms, end_ms - held_ms)
            case TurnEnded(speech_start_ms=start_ms, speech_end_ms=end_ms):
                started_ms = self._agent_started_ms
                self.turn_is_reply = started_ms is not None and start_ms >= started_ms
                return detector.speech_stopped(now_ms, end_ms - held_ms)
            case TurnDropped():
                return detector.speech_stopped(now_ms, now_ms)
            case AgentStarted(at_ms) if self._agent_started_ms is None:
                self._agent_started_ms = at_ms
        return ()

    def _on_partial(self, text: str) -> None:
        self._take(self._detector.partial_text(self._unheld(self._now_ms()), text))

    def _on_phrase(self, words: str) -> None:
        now_ms = self._unheld(self._now_ms())
        if not self._is_held():
            self._take(self._detector.phrase_spotted(now_ms, words))

    def _on_recognizer_failed(self) -> None:
        self._take(self._detector.recognizer_failed(self._unheld(self._now_ms())))

    def _on_tone(self, at_ms: float, tone: Tone) -> None:
        if self._is_held():
            return
        self._log.info("call.tone", tone=tone.kind, hz=round(tone.hz))
        now_ms = self._unheld(at_ms)
        held_ms = at_ms - now_ms
        start_ms, end_ms, detected_ms = (each - held_ms for each in (tone.start_ms, tone.end_ms, tone.detected_ms))
        self._take(self._detector.tone(now_ms, Tone(tone.kind, start_ms, end_ms, detected_ms, tone.hz)))

    def _on_time(self, at_ms: float, sound_ms: float) -> None:
        now_ms = self._unheld(at_ms)
        if self._is_held():
            return
        self._take(self._detector.tick(now_ms, sound_ms))
        if self.unheard_ms:
            self._on_change()

    def _unheld(self, at_ms: float) -> float:
        """This time on the detector's clock. The first call in a hold and the first one after it are its limits."""
        if self._is_held():
            if self._held_since_ms is None:
                self._held_since_ms = at_ms
            return self._held_since_ms - self._held_ms
        if self._held_since_ms is not None:
            self._held_ms += max(at_ms - self._held_since_ms, 0.0)
            self._held_since_ms = None
            self._take(self._detector.listening_again(at_ms - self._held_ms))
        return at_ms - self._held_ms

    def _take(self, events: Sequence[AnswerEvent]) -> None:
        if self._stopped:
            return
        for event in events:
            match event:
                case Verdict():
                    self._on_verdict(event)
                case MessageMayStart():
                    self.message_may_start = True
        if events:
            self._on_change()
        if self.closed:
            self.stop()

    def _on_verdict(self, verdict: Verdict) -> None:
        verdict = replace(verdict, at_ms=verdict.at_ms + self._held_ms)
        since_s = (verdict.at_ms - self._answered_ms) / 1000
        if not self._verdicts:
            metrics.ANSWER_SECONDS.labels(kind=verdict.kind).observe(since_s)
        self._verdicts.append(verdict)
        rule = verdict.evidence.rule
        self._log.info("call.answer_verdict", kind=verdict.kind, rule=rule, after_s=round(since_s, 2))
        self._log.debug("call.answer_verdict.evidence", detail=verdict.evidence.detail)

    # On other threads.

    def partial_text(self, text: str) -> None:
        """The recognizer's words of the open turn so far. Any thread."""
        if not self._stopped:
            self._post(partial(self._on_partial, text))

    def _phrase_spotted(self, words: str) -> None:
        if not self._stopped:
            self._post(partial(self._on_phrase, words))

    def recognizer_failed(self) -> None:
        """There are no more words. Any thread."""
        if not self._stopped:
            self._post(self._on_recognizer_failed)

    def on_tick(self, now_ms: float, samples: Samples, end_ms: float) -> None:
        """See `AudioMonitor`."""
        if self._stopped:
            return
        self._fed += len(samples)
        if self._spotter is not None:
            self._spotter.feed(samples)
        first_ms = end_ms - self._fed * self._ms_per_sample
        for tone in self._tones.feed(samples):
            on_clock = Tone(
                tone.kind, first_ms + tone.start_ms, first_ms + tone.end_ms, first_ms + tone.detected_ms, tone.hz
            )
            self._post(partial(self._on_tone, now_ms, on_clock))
        if now_ms >= self._next_tick_ms:
            self._next_tick_ms = now_ms + TICK_MS
            self._post(partial(self._on_time, now_ms, self._tones.sound_ms))
