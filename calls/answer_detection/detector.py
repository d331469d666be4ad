"""The state machine of answer detection.

Voice activity, words and tones run beside each other. Words and tones prove a machine; a person is all else that
speaks and then waits, so that what is unknown counts as a person. A verdict may be replaced until the window closes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from calls.answer_detection.events import (
    AnswerEvent,
    AnswerKind,
    Evidence,
    MessageMayStart,
    Rule,
    Verdict,
    WindowClosed,
)
from calls.answer_detection.phrases.languages import phrase_set
from calls.answer_detection.phrases.phrase_set import PhraseKind
from calls.answer_detection.settings import AnswerDetectionSettings
from calls.answer_detection.speech_timeline import SpeechTimeline
from calls.answer_detection.transcript_evidence import TranscriptEvidence
from media.call_progress.tones import Tone, ToneKind

TICK_MS: Final = 40
"""Maximum time between two inputs: `tick` is called this often."""
BEEP_SPEECH_MS: Final = 2000.0
"""Speech before a beep that was a voicemail greeting, if nobody has replied to it;"""
BEEP_AFTER_HUMAN_SPEECH_MS: Final = 6000.0
"""and the same after the verdict `human`: beeps of recording notices follow shorter greetings."""
HUMAN_HINT_SPEECH_MS: Final = 2500.0
RECORDING_GAP_MS: Final = 1500.0
"""After the verdict `human`, hints count in speech of this minimum length that begins within this gap."""
TURN_PAUSE_MS: Final = 1000.0
MUSIC_BEGINNING_MS: Final = 1000.0
"""Uninterrupted sound that may become music."""
MAX_WINDOW_MS: Final = 180_000.0
"""The window of undecided calls closes by this time after the answer, however long a ringback tone goes on."""

_STRONG: Final = (
    (PhraseKind.MAILBOX_UNAVAILABLE, AnswerKind.MAILBOX_UNAVAILABLE),
    (PhraseKind.CALL_SCREENING, AnswerKind.CALL_SCREENING),
    (PhraseKind.VOICEMAIL, AnswerKind.VOICEMAIL),
    (PhraseKind.MENU, AnswerKind.MENU),
    (PhraseKind.HOLD_QUEUE, AnswerKind.HOLD_QUEUE),
)
"""Phrases that decide, the most important first: a voicemail greeting may end with a menu."""
_HINTS: Final = (
    (PhraseKind.VOICEMAIL_HINT, AnswerKind.VOICEMAIL),
    (PhraseKind.HOLD_HINT, AnswerKind.HOLD_QUEUE),
)
_WAITING: Final = frozenset({AnswerKind.CALL_SCREENING, AnswerKind.MENU, AnswerKind.HOLD_QUEUE})
"""Verdicts after which a person or a voicemail may follow."""
_FINAL: Final = frozenset({AnswerKind.FAX, AnswerKind.MAILBOX_UNAVAILABLE})

_Decision = tuple[AnswerKind, Evidence] | None


class AnswerDetector:
    """Decides what answered one call. Inputs are in the order of their `at_ms`, any clock in ms; an earlier `at_ms`
    counts as the last one. Each returns the events that it causes. Input before `answered` and after `WindowClosed`
    has no effect."""

    def __init__(self, settings: AnswerDetectionSettings) -> None:
        self._settings = settings
        self._phrases = phrase_set(settings.language)
        self._speech = SpeechTimeline()
        self._words = TranscriptEvidence(self._phrases, settings.stable_text_ms)
        self._words_decide = self._phrases is not None
        """A recognizer and phrases of the language."""
        self._now = float("-inf")
        self._answered_ms: float | None = None
        self._verdict: Verdict | None = None
        self._closed = False
        self._beep: Tone | None = None
        self._expected_since = 0.0
        self._sound_ms = 0.0
        self._is_new_turn = False
        """Speech has begun after a pause, since a menu, a queue or a call screening."""

    @property
    def verdict(self) -> Verdict | None:
        """The present verdict; None before the first."""
        return self._verdict

    @property
    def closed(self) -> bool:
        """The window has closed."""
        return self._closed

    @property
    def is_short_answer(self) -> bool:
        """All that the callee has said is a short answer ("hello", a name), which has ended and has no words of a
        machine."""
        span_ms, machine = self._speech.span_ms(self._now), (*_STRONG, *_HINTS)
        short = span_ms <= self._settings.short_speech_ms and not self._speech.speaking
        heard = self._speech.first_start_ms is not None or bool(self._words.text)
        return heard and short and not any(self._words.contains(kind) for kind, _ in machine)

    @property
    def unheard_ms(self) -> float:
        """Time since the answer, or since the last ring of a ringback tone, if nothing has been heard; else 0. What may
        become music has been heard."""
        heard = self._has_spoken or self._beep is not None or self._sound_ms >= MUSIC_BEGINNING_MS
        if self._answered_ms is None or self._verdict is not None or heard:
            return 0.0
        return self._now - self._expected_since

    def answered(self, at_ms: float) -> list[AnswerEvent]:
        """The call was answered (200 OK): what was heard before, in early media, does not count. Only once."""
        if self._answered_ms is None:
            self._now = max(self._now, at_ms)
            self._answered_ms = self._expected_since = self._now
            self._speech.begin_at_answer(self._now)
            self._words.begin(self._now)
        return []

    def listening_again(self, at_ms: float) -> list[AnswerEvent]:
        """Nothing was listened to for some time, such as during a hold, in which the clock of `at_ms` stood still:
        without a verdict, detection begins anew, as at the answer; else what follows is judged on its own."""
        self._now = max(self._now, at_ms)
        if self._answered_ms is None or self._closed:
            return []
        self._beep = None
        if self._verdict is None:
            self._answered_ms = None
            return self.answered(self._now)
        self._begin_again(self._now)
        self._speech.forget_pause()
        return []

    def recognizer_failed(self, at_ms: float) -> list[AnswerEvent]:
        """There are no more words: cadence and tones decide alone from now on."""
        self._words_decide = False
        return self._advance(at_ms)

    def speech_started(self, at_ms: float, start_ms: float) -> list[AnswerEvent]:
        """Voice activity detection found at `at_ms` that speech began at `start_ms`."""
        if self._is_waiting and self._speech.pause_ms(start_ms) > TURN_PAUSE_MS:
            self._begin_again(start_ms)
            self._is_new_turn = True
        self._speech.start(start_ms)
        return self._advance(at_ms)

    def speech_stopped(self, at_ms: float, end_ms: float) -> list[AnswerEvent]:
        """Voice activity detection found at `at_ms` that speech ended at `end_ms`."""
        self._speech.stop(end_ms)
        return self._advance(at_ms)

    def partial_text(self, at_ms: float, text: str) -> list[AnswerEvent]:
        """The recognizer's words of the open turn so far."""
        self._words.partial(max(at_ms, self._now), text)
        return self._advance(at_ms)

    def final_text(self, at_ms: float, text: str) -> list[AnswerEvent]:
        """The recognizer's words of a turn that has ended."""
        self._words.final(max(at_ms, self._now), text)
        return self._advance(at_ms)

    def tone(self, at_ms: float, tone: Tone) -> list[AnswerEvent]:
        """A tone; its times are on the same clock."""
        self._now = max(self._now, at_ms)
        if self._answered_ms is None or self._closed or tone.end_ms <= self._answered_ms:
            return []
        self._speech.drop_tone(tone.start_ms, tone.end_ms)
        match tone.kind:
            case ToneKind.CED | ToneKind.CNG:
                return self._decide((AnswerKind.FAX, Evidence(Rule.TONE, tone.kind)))
            case ToneKind.SIT | ToneKind.BUSY:
                return self._decide((AnswerKind.MAILBOX_UNAVAILABLE, Evidence(Rule.TONE, tone.kind)))
            case ToneKind.RINGBACK:
                self._expected_since = self._now
            case ToneKind.BEEP:
                self._beep = tone
        return self._advance(at_ms)

    def tick(self, at_ms: float, sound_ms: float = 0.0) -> list[AnswerEvent]:
        """Time has passed. `sound_ms`: how long sound other than tones and noise has gone on without a gap."""
        self._sound_ms = sound_ms
        return self._advance(at_ms)

    @property
    def _has_spoken(self) -> bool:
        return self._speech.first_start_ms is not None or bool(self._words.text)

    @property
    def _is_waiting(self) -> bool:
        return self._verdict is not None and self._verdict.kind in _WAITING

    def _advance(self, at_ms: float) -> list[AnswerEvent]:
        self._now = max(self._now, at_ms)
        if self._answered_ms is None or self._closed:
            return []
        events = self._decide(self._next_decision())
        if not self._closed:
            events += self._end_window()
        return events

    def _next_decision(self) -> _Decision:
        """The verdict that the evidence gives now, if it is another one than the present."""
        match self._verdict.kind if self._verdict else None:
            case None | AnswerKind.SILENCE:
                rules = (
                    self._strong,
                    self._hinted,
                    self._cadence,
                    self._beeped,
                    self._person,
                    self._music,
                    self._silent,
                )
                return _first(*rules)
            case AnswerKind.HUMAN:
                return _first(self._recording_after_human, self._beeped_after_human)
            case AnswerKind.VOICEMAIL:
                strong = self._strong()
                return strong if strong and strong[0] is AnswerKind.MAILBOX_UNAVAILABLE else None
            case _ if self._is_waiting:
                return _first(self._strong, self._hinted, self._beeped, self._person_after_waiting)
        return None

    # Evidence of a machine

    def _strong(self) -> _Decision:
        for phrase_kind, kind in _STRONG:
            if kind is AnswerKind.CALL_SCREENING and self._words.contains(PhraseKind.LIVE):
                continue  # a person asks for the name too
            if found := self._words.stable(self._now, phrase_kind):
                return kind, Evidence(Rule.PHRASE, found[0].words)
        return None

    def _hinted(self) -> _Decision:
        settings = self._settings
        quiet = self._speech.quiet_ms(self._now) >= settings.live_quiet_ms
        if not quiet and self._speech.speech_ms(self._now) < settings.hint_speech_ms:
            return None
        return self._two_hints()

    def _two_hints(self) -> _Decision:
        if self._words.contains(PhraseKind.LIVE):
            return None
        for phrase_kind, kind in _HINTS:
            found = self._words.stable(self._now, phrase_kind)
            if len(found) >= 2:
                return kind, Evidence(Rule.HINTS, ", ".join(phrase.words for phrase in found))
        return None

    def _cadence(self) -> _Decision:
        if self._words_decide and self._words.text:
            return None
        run_ms = self._speech.run_ms(self._now, self._settings.cadence_pause_ms)
        if run_ms < self._settings.cadence_speech_ms:
            return None
        return AnswerKind.VOICEMAIL, Evidence(Rule.CADENCE, f"{run_ms:.0f} ms")

    def _beeped(self) -> _Decision:
        """A beep after a greeting that nobody replied to; or a beep after nothing, and then nothing."""
        if self._beep is None:
            return None
        waits = self._is_waiting
        spoken = self._speech.speech_ms(self._now) >= BEEP_SPEECH_MS
        greeted = self._beep_ends_speech() and (self._hints() or (spoken and not waits))
        first = self._speech.first_start_ms
        alone = first is None and not waits and self._quiet_since_beep() >= self._settings.message_quiet_ms
        if (not greeted and not alone) or self._words.contains(PhraseKind.LIVE):
            return None
        return AnswerKind.VOICEMAIL, Evidence(Rule.TONE, ToneKind.BEEP)

    def _beep_ends_speech(self) -> bool:
        """There was speech before the last beep, and none has begun since."""
        last_ms = self._speech.last_start_ms
        return self._beep is not None and last_ms is not None and last_ms < self._beep.start_ms

    def _quiet_since_beep(self) -> float:
        after_ms = self._now - (self._beep.end_ms if self._beep else self._now)
        return min(self._speech.quiet_ms(self._now), after_ms)

    def _recording_after_human(self) -> _Decision:
        """A recording has paused and goes on without a reply."""
        verdict, last_ms = self._verdict, self._speech.last_start_ms
        if verdict is None or last_ms is None:
            return None
        gap_ms = last_ms - verdict.at_ms
        strong = self._strong() if gap_ms <= self._settings.correction_ms else None
        if strong or gap_ms > RECORDING_GAP_MS or self._speech.run_ms(self._now, 0) < HUMAN_HINT_SPEECH_MS:
            return strong
        return self._two_hints()

    def _beeped_after_human(self) -> _Decision:
        if not self._beep_ends_speech() or self._words.contains(PhraseKind.LIVE):
            return None
        if not self._hints() and self._speech.speech_ms(self._now) < BEEP_AFTER_HUMAN_SPEECH_MS:
            return None
        return AnswerKind.VOICEMAIL, Evidence(Rule.TONE, ToneKind.BEEP)

    def _hints(self) -> bool:
        return bool(self._words.stable(self._now, PhraseKind.VOICEMAIL_HINT))

    # Evidence of a person

    def _person(self) -> _Decision:
        speech, settings, now = self._speech, self._settings, self._now
        start = speech.first_start_ms
        if start is None or speech.speaking:
            return self._greeting_words()
        span, quiet = speech.span_ms(now), speech.quiet_ms(now)
        left_ms = settings.short_verdict_ms - span
        short_quiet = max(settings.min_quiet_ms, min(settings.short_quiet_ms, left_ms))
        is_short = span <= settings.short_speech_ms
        if self._words.stable(now, PhraseKind.LIVE):
            needed = min(settings.live_quiet_ms, short_quiet) if is_short else settings.live_quiet_ms
            rule = Rule.LIVE_WORDS
        elif self._words.contains(PhraseKind.VOICEMAIL_HINT):
            needed, rule = settings.hint_quiet_ms, Rule.SPEECH_THEN_QUIET
        elif is_short:
            needed, rule = short_quiet, Rule.SHORT_ANSWER
        else:
            needed, rule = settings.long_quiet_ms, Rule.SPEECH_THEN_QUIET
        return (AnswerKind.HUMAN, Evidence(rule, f"{span:.0f} ms")) if quiet >= needed else None

    def _greeting_words(self) -> _Decision:
        """A short answer that only the recognizer has, or whose end only the recognizer knows."""
        start = self._speech.first_start_ms
        heard = self._words.is_greeting() and self._now - self._words.changed_ms >= self._settings.short_quiet_ms
        if not heard or (start is not None and self._now - start < self._settings.short_verdict_ms):
            return None
        return AnswerKind.HUMAN, Evidence(Rule.GREETING_WORDS, self._words.text)

    def _person_after_waiting(self) -> _Decision:
        """A new turn after a screening, a menu or a queue, with words that are not theirs, or without a recognizer."""
        words, speech, settings = self._words, self._speech, self._settings
        if speech.speaking or speech.first_start_ms is None:
            return None
        quiet, span = speech.quiet_ms(self._now), speech.span_ms(self._now)
        if words.stable(self._now, PhraseKind.LIVE):
            is_person, rule, needed = True, Rule.LIVE_WORDS, settings.live_quiet_ms
        else:
            machine = any(words.contains(kind) for kind, _ in (*_STRONG, *_HINTS))
            has_words = not self._words_decide or bool(words.text)
            is_short = span <= settings.short_speech_ms
            is_person = self._is_new_turn and has_words and is_short and not machine
            rule = Rule.SHORT_ANSWER
            needed = settings.short_quiet_ms
        return (AnswerKind.HUMAN, Evidence(rule, f"{span:.0f} ms")) if is_person and quiet >= needed else None

    def _music(self) -> _Decision:
        """Sound that goes on, and no speech: a queue that announces nothing."""
        if self._verdict is not None or self._has_spoken:
            return None
        sound_ms = min(self._sound_ms, self._now - self._expected_since)
        if sound_ms < self._settings.music_ms:
            return None
        return AnswerKind.HOLD_QUEUE, Evidence(Rule.MUSIC, f"{sound_ms:.0f} ms")

    def _silent(self) -> _Decision:
        if self._verdict is not None or self._has_spoken:
            return None
        if self._now - self._expected_since < self._settings.no_speech_ms:
            return None
        return AnswerKind.SILENCE, Evidence(Rule.NO_SPEECH, f"{self._settings.no_speech_ms:.0f} ms")

    # Verdicts and the window

    def _decide(self, decision: _Decision) -> list[AnswerEvent]:
        if decision is None:
            return []
        kind, evidence = decision
        before = self._verdict
        repeats = before is not None and before.kind is kind
        if not repeats:
            self._verdict = Verdict(self._now, kind, evidence, before.kind if before else None)
        if self._is_waiting:
            self._begin_again(self._now)
        if repeats or self._verdict is None:
            return []
        return [self._verdict, *(self._close() if kind in _FINAL else ())]

    def _begin_again(self, since_ms: float) -> None:
        """What follows a machine that a person may replace is judged on its own, and so is each turn after it: music
        may pass for speech."""
        self._is_new_turn = False
        self._speech.begin(since_ms)
        self._words.begin(self._now)

    def _end_window(self) -> list[AnswerEvent]:
        verdict = self._verdict
        if verdict is None or verdict.kind is AnswerKind.SILENCE:
            return self._end_undecided()
        if verdict.kind is AnswerKind.VOICEMAIL and (may_start := self._message()):
            return [may_start, *self._close()]
        since_ms = self._now - verdict.at_ms
        return self._close() if since_ms >= self._window_ms(verdict.kind) or self._talked(verdict) else []

    def _end_undecided(self) -> list[AnswerEvent]:
        answered_ms = self._answered_ms or 0.0
        over = self._now - self._expected_since >= self._settings.window_ms
        if not over and self._now - answered_ms < MAX_WINDOW_MS:
            return []
        if not self._has_spoken:
            silent = self._decide((AnswerKind.SILENCE, Evidence(Rule.NO_SPEECH, "")))
            return [*silent, *self._close()]
        span = f"{self._speech.span_ms(self._now):.0f} ms"
        return [*self._decide((AnswerKind.HUMAN, Evidence(Rule.WINDOW_OVER, span))), *self._close()]

    def _window_ms(self, kind: AnswerKind) -> float:
        match kind:
            case AnswerKind.HUMAN:
                return self._settings.human_window_ms
            case AnswerKind.HOLD_QUEUE:
                return self._settings.hold_window_ms
            case _:
                return self._settings.machine_window_ms

    def _talked(self, verdict: Verdict) -> bool:
        """The callee has had its turns after the verdict `human`."""
        is_human = verdict.kind is AnswerKind.HUMAN and not self._speech.speaking
        pause_over = self._speech.quiet_ms(self._now) >= TURN_PAUSE_MS
        return is_human and pause_over and self._speech.turns(TURN_PAUSE_MS) > self._settings.human_turns

    def _message(self) -> MessageMayStart | None:
        """A beep after which nobody has spoken, or quiet."""
        if self._beep is not None:
            last = self._speech.last_start_ms
            if last is None or last < self._beep.end_ms:
                return MessageMayStart(self._now, "beep")
        if self._speech.quiet_ms(self._now) >= self._settings.message_quiet_ms:
            return MessageMayStart(self._now, "quiet")
        return None

    def _close(self) -> list[AnswerEvent]:
        self._closed = True
        kind = self._verdict.kind if self._verdict else AnswerKind.SILENCE
        return [WindowClosed(self._now, kind)]


def _first(*rules: Callable[[], _Decision]) -> _Decision:
    """The first decision of the rules."""
    return next((decision for rule in rules if (decision := rule())), None)
