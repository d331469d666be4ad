"""The state machine of answer detection.

Voice activity, words and tones run beside each other. Words and tones prove a machine; a person is all else that
speaks and then waits, so that what is unknown counts as a person. A verdict may be replaced until the window closes."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from calls.answer_detection import human_rules, machine_rules
from calls.answer_detection.events import (
    AnswerEvent,
    AnswerKind,
    Evidence,
    MessageMayStart,
    Rule,
    Verdict,
    WindowClosed,
)
from calls.answer_detection.observation import Decision, Observation
from calls.answer_detection.settings import AnswerDetectionSettings
from media.call_progress.tones import Tone, ToneKind

TICK_MS: Final = 40
"""Maximum time between two inputs: `tick` is called this often."""
TURN_PAUSE_MS: Final = 1000.0
MAX_WINDOW_MS: Final = 180_000.0
"""The window of undecided calls closes by this time after the answer, however long a ringback tone goes on."""


class _Awaits(Enum):
    """What the detector waits for."""

    ANSWER = auto()
    """The call is not answered: nothing counts yet."""
    CALLEE = auto()
    """The first verdict."""
    FIRST_WORDS = auto()
    """Nobody has spoken, but somebody may."""
    RECORDING = auto()
    """A person has answered, who may turn out to be a recording."""
    BEEP = auto()
    """A voicemail has answered: a message may start at its beep, or in quiet."""
    REST_OF_TURN = auto()
    """A menu, a queue or a call screening has answered, and its turn goes on: that is no person. A voicemail, or
    somebody who talks to the caller, may follow."""
    NEXT_TURN = auto()
    """The same, and speech has begun after a pause: it may be a person's."""
    NOTHING = auto()
    """The window has closed."""


_AFTER: Final = {
    AnswerKind.SILENCE: _Awaits.FIRST_WORDS,
    AnswerKind.HUMAN: _Awaits.RECORDING,
    AnswerKind.VOICEMAIL: _Awaits.BEEP,
    AnswerKind.CALL_SCREENING: _Awaits.REST_OF_TURN,
    AnswerKind.MENU: _Awaits.REST_OF_TURN,
    AnswerKind.HOLD_QUEUE: _Awaits.REST_OF_TURN,
}
"""What follows each verdict; the others are final."""
_UNDECIDED: Final = (_Awaits.CALLEE, _Awaits.FIRST_WORDS)
_TURNS: Final = (_Awaits.REST_OF_TURN, _Awaits.NEXT_TURN)
_OVER: Final = (_Awaits.ANSWER, _Awaits.NOTHING)


class AnswerDetector:
    """Decides what answered one call. Inputs are in the order of their `at_ms`, any clock in ms; an earlier `at_ms`
    counts as the last one. Each returns the events that it causes. Input before `answered` and after `WindowClosed`
    has no effect."""

    def __init__(self, settings: AnswerDetectionSettings) -> None:
        self._settings = settings
        self._seen = Observation(settings)
        self._awaits = _Awaits.ANSWER
        self._answered_ms = 0.0
        self._verdict: Verdict | None = None

    @property
    def verdict(self) -> Verdict | None:
        """The present verdict; None before the first."""
        return self._verdict

    @property
    def closed(self) -> bool:
        """The window has closed."""
        return self._awaits is _Awaits.NOTHING

    @property
    def is_short_answer(self) -> bool:
        """See `Observation`."""
        return self._seen.is_short_answer

    @property
    def unheard_ms(self) -> float:
        """Time since the answer, or since the last ring of a ringback tone, if nothing has been heard; else 0. What may
        become music has been heard."""
        if self._awaits is not _Awaits.CALLEE or self._seen.has_sounded:
            return 0.0
        return self._seen.now_ms - self._seen.expected_since_ms

    # Input

    def answered(self, at_ms: float) -> list[AnswerEvent]:
        """The call was answered (200 OK): what was heard before, in early media, does not count. Only once."""
        if self._awaits is _Awaits.ANSWER:
            self._awaits = _Awaits.CALLEE
            self._pass_time(at_ms)
            self._answered_ms = self._seen.now_ms
            self._seen.begin_at_answer()
        return []

    def listening_again(self, at_ms: float) -> list[AnswerEvent]:
        """Nothing was listened to for some time, such as during a hold, in which the clock of `at_ms` stood still:
        without a verdict, detection begins anew, as at the answer; else what follows is judged on its own."""
        self._pass_time(at_ms)
        if self._awaits in _OVER:
            return []
        self._seen.beep = None
        if self._awaits is _Awaits.CALLEE:
            self._awaits = _Awaits.ANSWER
            return self.answered(at_ms)
        self._seen.begin_again(self._seen.now_ms)
        self._seen.speech.forget_pause()
        if self._awaits is _Awaits.NEXT_TURN:
            self._awaits = _Awaits.REST_OF_TURN
        return []

    def recognizer_failed(self, at_ms: float) -> list[AnswerEvent]:
        """There are no more words: cadence and tones decide alone from now on."""
        self._seen.has_recognizer = False
        return self._advance(at_ms)

    def speech_started(self, at_ms: float, start_ms: float) -> list[AnswerEvent]:
        """Voice activity detection found at `at_ms` that speech began at `start_ms`."""
        if self._awaits in _TURNS and self._seen.speech.pause_ms(start_ms) > TURN_PAUSE_MS:
            self._seen.begin_again(start_ms)
            self._awaits = _Awaits.NEXT_TURN
        self._seen.speech.start(start_ms)
        return self._advance(at_ms)

    def speech_stopped(self, at_ms: float, end_ms: float) -> list[AnswerEvent]:
        """Voice activity detection found at `at_ms` that speech ended at `end_ms`."""
        self._seen.speech.stop(end_ms)
        return self._advance(at_ms)

    def partial_text(self, at_ms: float, text: str) -> list[AnswerEvent]:
        """The recognizer's words of the open turn so far."""
        self._seen.words.partial(max(at_ms, self._seen.now_ms), text)
        return self._advance(at_ms)

    def final_text(self, at_ms: float, text: str) -> list[AnswerEvent]:
        """The recognizer's words of a turn that has ended."""
        self._seen.words.final(max(at_ms, self._seen.now_ms), text)
        return self._advance(at_ms)

    def phrase_spotted(self, at_ms: float, words: str) -> list[AnswerEvent]:
        """One of `spotted_phrases` was heard, whatever the recognizer's words are."""
        self._pass_time(at_ms)
        self._seen.spotted(words)
        return self._advance(at_ms)

    def tone(self, at_ms: float, tone: Tone) -> list[AnswerEvent]:
        """A tone; its times are on the same clock."""
        self._pass_time(at_ms)
        if self._awaits in _OVER or tone.end_ms <= self._answered_ms:
            return []
        self._seen.speech.drop_tone(tone.start_ms, tone.end_ms)
        match tone.kind:
            case ToneKind.CED | ToneKind.CNG:
                return self._decide((AnswerKind.FAX, Evidence(Rule.TONE, tone.kind)))
            case ToneKind.SIT | ToneKind.BUSY:
                return self._decide((AnswerKind.MAILBOX_UNAVAILABLE, Evidence(Rule.TONE, tone.kind)))
            case ToneKind.RINGBACK:
                self._seen.expected_since_ms = self._seen.now_ms
            case ToneKind.BEEP:
                self._seen.beep = tone
        return self._advance(at_ms)

    def tick(self, at_ms: float, sound_ms: float = 0.0) -> list[AnswerEvent]:
        """Time has passed. `sound_ms`: how long sound other than tones and noise has gone on without a gap."""
        self._seen.sound_ms = sound_ms
        return self._advance(at_ms)

    def _pass_time(self, at_ms: float) -> None:
        self._seen.now_ms = max(self._seen.now_ms, at_ms)

    def _advance(self, at_ms: float) -> list[AnswerEvent]:
        self._pass_time(at_ms)
        if self._awaits in _OVER:
            return []
        events = self._decide(self._next_decision())
        if not self.closed:
            events += self._end_window()
        return events

    # Verdicts

    def _next_decision(self) -> Decision:
        """The verdict that the evidence gives now; the first rule that applies counts."""
        seen, rules = self._seen, machine_rules
        match self._awaits:
            case _Awaits.CALLEE:
                return self._machine_or_person() or rules.music(seen) or human_rules.silence(seen)
            case _Awaits.FIRST_WORDS:
                return self._machine_or_person()
            case _Awaits.RECORDING:
                return rules.recording_after_human(seen, self._verdict_ms) or rules.beep_after_human(seen)
            case _Awaits.BEEP:
                return rules.unavailable_after_voicemail(seen)
            case _Awaits.REST_OF_TURN:
                return self._machine_after_waiting() or human_rules.live_words(seen)
            case _Awaits.NEXT_TURN:
                return self._machine_after_waiting() or human_rules.live_words(seen) or human_rules.short_turn(seen)
        return None

    def _machine_or_person(self) -> Decision:
        seen, rules = self._seen, machine_rules
        machine = rules.phrase(seen) or rules.hints(seen) or rules.unreachable(seen)
        machine = machine or rules.cadence(seen) or rules.beep(seen)
        return machine or human_rules.person(seen)

    def _machine_after_waiting(self) -> Decision:
        seen, rules = self._seen, machine_rules
        return rules.phrase(seen) or rules.hints(seen) or rules.unreachable(seen) or rules.beep_after_waiting(seen)

    @property
    def _verdict_ms(self) -> float:
        """The time of the present verdict."""
        return self._verdict.at_ms if self._verdict else self._answered_ms

    def _decide(self, decision: Decision) -> list[AnswerEvent]:
        if decision is None:
            return []
        kind, evidence = decision
        before, now_ms = self._verdict, self._seen.now_ms
        self._awaits = _AFTER.get(kind, _Awaits.NOTHING)
        if self._awaits is _Awaits.REST_OF_TURN:  # what follows is judged on its own, and so is each turn after it
            self._seen.begin_again(now_ms)
        if before is not None and before.kind is kind:
            return []
        self._verdict = Verdict(now_ms, kind, evidence, before.kind if before else None)
        return [self._verdict, *(self._close(kind) if self.closed else ())]

    # The window

    def _end_window(self) -> list[AnswerEvent]:
        if self._awaits in _UNDECIDED:
            return self._end_undecided()
        assert self._verdict is not None
        kind = self._verdict.kind
        if self._awaits is _Awaits.BEEP and (may_start := self._message()):
            return [may_start, *self._close(kind)]
        is_over = self._seen.now_ms - self._verdict.at_ms >= self._window_ms(kind)
        return self._close(kind) if is_over or self._has_talked else []

    def _end_undecided(self) -> list[AnswerEvent]:
        seen = self._seen
        over = seen.now_ms - seen.expected_since_ms >= self._settings.window_ms
        if not over and seen.now_ms - self._answered_ms < MAX_WINDOW_MS:
            return []
        kind, evidence = human_rules.window_over(seen)
        return [*self._decide((kind, evidence)), *self._close(kind)]

    def _window_ms(self, kind: AnswerKind) -> float:
        match kind:
            case AnswerKind.HUMAN:
                return self._settings.human_window_ms
            case AnswerKind.HOLD_QUEUE:
                return self._settings.hold_window_ms
            case _:
                return self._settings.machine_window_ms

    @property
    def _has_talked(self) -> bool:
        """A person has answered and has had its turns."""
        speech = self._seen.speech
        is_human = self._awaits is _Awaits.RECORDING and not speech.speaking
        pause_over = self._seen.quiet_ms >= TURN_PAUSE_MS
        return is_human and pause_over and speech.turns(TURN_PAUSE_MS) > self._settings.human_turns

    def _message(self) -> MessageMayStart | None:
        """A beep after which nobody has spoken, or quiet."""
        seen = self._seen
        if seen.beep is not None:
            last = seen.speech.last_start_ms
            if last is None or last < seen.beep.end_ms:
                return MessageMayStart(seen.now_ms, "beep")
        if seen.quiet_ms >= self._settings.message_quiet_ms:
            return MessageMayStart(seen.now_ms, "quiet")
        return None

    def _close(self, kind: AnswerKind) -> list[AnswerEvent]:
        self._awaits = _Awaits.NOTHING
        return [WindowClosed(self._seen.now_ms, kind)]
