"""Settings of answer detection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AnswerDetectionSettings:
    """`language` is a BCP 47 tag, None for English; a language without phrases is judged by cadence and tones alone.
    Times in ms."""

    language: str | None = None
    window_ms: float = 20_000
    """Time after the answer by which there is a verdict."""
    no_speech_ms: float = 10_000
    """Silence after the answer, or after the last ring of a ringback tone, that is the verdict `silence`."""
    music_ms: float = 2500
    """Uninterrupted sound without speech that is the music of a queue."""
    short_speech_ms: float = 2000
    """Speech of at most this length is a short answer: "hello", a name."""
    short_quiet_ms: float = 900
    """Quiet after a short answer that makes it a person's: a voicemail greeting may pause for less ("Hello. You have
    reached ..."). `short_verdict_ms` cuts it for longer answers."""
    short_verdict_ms: float = 1850
    """Maximum time from the beginning of a short answer to its verdict, if that leaves `min_quiet_ms`: an answer for
    which it does not waits for the whole `short_quiet_ms`. With the delays of voice activity detection and of the ticks
    a person waits at most 2 s."""
    min_quiet_ms: float = 400
    """Minimum quiet after a short answer, however long that was."""
    long_quiet_ms: float = 1200
    """Quiet after longer speech that makes it a person's, or an announcement that nobody can be reached, if it says
    so."""
    late_words_quiet_ms: float = 3000
    """The same for a person while the recognizer has no word of it yet: on a busy machine it lags behind."""
    live_quiet_ms: float = 600
    """The same after words that only a listener says: "how can I help you"."""
    hint_quiet_ms: float = 2000
    """The same after words that a machine says too: "I'm not available"."""
    hint_speech_ms: float = 4000
    """Speech with two such words that need not end to be a voicemail greeting."""
    cadence_speech_ms: float = 12_000
    """Speech without a pause that is a voicemail greeting if its words are not known."""
    cadence_pause_ms: float = 1000
    """A longer pause ends the speech of `cadence_speech_ms`."""
    stable_text_ms: float = 300
    """Time for which a partial text must keep a phrase."""
    correction_ms: float = 3000
    """Speech that begins within this time after the verdict `human` can turn out to be a recording, which does not
    wait for a reply."""
    human_window_ms: float = 10_000
    """The window closes this long after the verdict `human`, or after `human_turns`."""
    human_turns: int = 2
    """Turns of the callee after the verdict `human`, after which the window closes."""
    machine_window_ms: float = 60_000
    """The window closes this long after the verdict `voicemail`, `call_screening` or `menu`."""
    hold_window_ms: float = 600_000
    """The window closes this long after the verdict `hold_queue`."""
    message_quiet_ms: float = 2000
    """Quiet in a voicemail after which a message may start without a beep."""
