"""What is known of the callee: the evidence that the rules judge."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from calls.answer_detection.events import AnswerKind, Evidence
from calls.answer_detection.phrases.languages import phrase_set, spotted_phrases
from calls.answer_detection.phrases.phrase_set import Phrase, PhraseKind
from calls.answer_detection.settings import AnswerDetectionSettings
from calls.answer_detection.speech_timeline import SpeechTimeline
from calls.answer_detection.transcript_evidence import TranscriptEvidence
from media.call_progress.tones import Tone

MUSIC_BEGINNING_MS: Final = 1000.0
"""Uninterrupted sound that may become music."""
SPOTTED_SPEECH_MS: Final = 2000.0
"""Speech, with pauses as in `cadence_pause_ms`, in which spotted phrases count."""
STRONG: Final = (
    (PhraseKind.MAILBOX_UNAVAILABLE, AnswerKind.MAILBOX_UNAVAILABLE),
    (PhraseKind.CALL_SCREENING, AnswerKind.CALL_SCREENING),
    (PhraseKind.VOICEMAIL, AnswerKind.VOICEMAIL),
    (PhraseKind.MENU, AnswerKind.MENU),
    (PhraseKind.HOLD_QUEUE, AnswerKind.HOLD_QUEUE),
)
"""Phrases that decide, the most important first: a voicemail greeting may end with a menu."""
HINTS: Final = (
    (PhraseKind.VOICEMAIL_HINT, AnswerKind.VOICEMAIL),
    (PhraseKind.HOLD_HINT, AnswerKind.HOLD_QUEUE),
)

Decision = tuple[AnswerKind, Evidence] | None
"""What a rule makes of an observation; None: it does not apply."""


@dataclass
class Observation:
    """All of one call, from the answer on, or since a machine that a person may replace. `now_ms` is the time of the
    last input; all times are on its clock."""

    settings: AnswerDetectionSettings
    now_ms: float = float("-inf")
    expected_since_ms: float = 0.0
    """The answer, or the last ring of a ringback tone: somebody should speak from now on."""
    sound_ms: float = 0.0
    """How long sound other than tones and noise has gone on without a gap."""
    beep: Tone | None = None
    """The last one."""
    speech: SpeechTimeline = field(default_factory=SpeechTimeline)
    words: TranscriptEvidence = field(init=False)
    has_recognizer: bool = field(init=False)
    """There are words, and phrases of their language."""

    def __post_init__(self) -> None:
        phrases = phrase_set(self.settings.language)
        self.words = TranscriptEvidence(phrases, self.settings.stable_text_ms)
        self.has_recognizer = phrases is not None

    def begin_at_answer(self) -> None:
        """Forget all so far; open speech counts from now on."""
        self.expected_since_ms = self.now_ms
        self.speech.begin_at_answer(self.now_ms)
        self.words.begin(self.now_ms)

    def begin_again(self, since_ms: float) -> None:
        """Forget the words so far, and the speech that began before a time."""
        self.speech.begin(since_ms)
        self.words.begin(self.now_ms)

    def spotted(self, words: str) -> None:
        """A phrase of `spotted_phrases` was heard. In short speech that was an error: announcements are longer."""
        kind = spotted_phrases(self.settings.language).get(words)
        run_ms = self.speech.run_ms(self.now_ms, self.settings.cadence_pause_ms)
        if kind is not None and run_ms >= SPOTTED_SPEECH_MS:
            self.words.spotted(Phrase(kind, 0, words))

    @property
    def has_spoken(self) -> bool:
        """There was speech, or there are words."""
        return self.speech.first_start_ms is not None or bool(self.words.text)

    @property
    def has_sounded(self) -> bool:
        """Something was heard, and be it what may become music."""
        return self.has_spoken or self.beep is not None or self.sound_ms >= MUSIC_BEGINNING_MS

    @property
    def has_machine_words(self) -> bool:
        """There are words that machines say, stable or not."""
        kinds = (PhraseKind.UNREACHABLE, *(kind for kind, _ in (*STRONG, *HINTS)))
        return any(self.words.contains(kind) for kind in kinds)

    @property
    def is_short_answer(self) -> bool:
        """All that was said is a short answer ("hello", a name), which has ended and has no words of a machine."""
        short = self.span_ms <= self.settings.short_speech_ms and not self.speech.speaking
        return self.has_spoken and short and not self.has_machine_words

    @property
    def span_ms(self) -> float:
        """From the beginning of the first speech to the end of the last, pauses included."""
        return self.speech.span_ms(self.now_ms)

    @property
    def quiet_ms(self) -> float:
        """Time since the end of the last speech; 0 while it lasts."""
        return self.speech.quiet_ms(self.now_ms)

    @property
    def quiet_since_beep_ms(self) -> float:
        """Time in which nothing was said after the last beep; 0 without one."""
        after_ms = self.now_ms - (self.beep.end_ms if self.beep else self.now_ms)
        return min(self.quiet_ms, after_ms)

    @property
    def beep_ends_speech(self) -> bool:
        """There was speech before the last beep, and none has begun since."""
        last_ms = self.speech.last_start_ms
        return self.beep is not None and last_ms is not None and last_ms < self.beep.start_ms
