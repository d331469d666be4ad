"""Evidence of a machine: words, tones, music, and speech without a pause. Each rule judges an observation."""

from __future__ import annotations

from typing import Final

from calls.answer_detection.events import AnswerKind, Evidence, Rule
from calls.answer_detection.observation import HINTS, STRONG, Decision, Observation
from calls.answer_detection.phrases.phrase_set import PhraseKind
from media.call_progress.tones import ToneKind

BEEP_SPEECH_MS: Final = 2000.0
"""Speech before a beep that was a voicemail greeting, if nobody has replied to it;"""
BEEP_AFTER_HUMAN_SPEECH_MS: Final = 6000.0
"""and the same after the verdict `human`: beeps of recording notices follow shorter greetings."""
UNREACHABLE_SPEECH_MS: Final = 8000.0
"""Speech with an announcement that nobody can be reached, which need not end: a mailbox would have been offered."""
HUMAN_HINT_SPEECH_MS: Final = 2500.0
RECORDING_GAP_MS: Final = 1500.0
"""After the verdict `human`, hints count in speech of this minimum length that begins within this gap."""

LONGEST_PIECES: Final = 2
"""The last piece of a recording that goes on may begin so many `correction_ms` after the verdict `human`."""

_BEEPED: Final = AnswerKind.VOICEMAIL, Evidence(Rule.TONE, ToneKind.BEEP)


def phrase(seen: Observation) -> Decision:
    """Words that only machines say."""
    for phrase_kind, kind in STRONG:
        if kind is AnswerKind.CALL_SCREENING and seen.words.contains(PhraseKind.LIVE):
            continue  # a person asks for the name too
        if found := seen.words.stable(seen.now_ms, phrase_kind):
            return kind, Evidence(Rule.PHRASE, found[0].words)
    return None


def unreachable(seen: Observation) -> Decision:
    """Nobody can be reached, and no mailbox is offered until the speech ends or is long."""
    found = seen.words.stable(seen.now_ms, PhraseKind.UNREACHABLE)
    ended = seen.quiet_ms >= seen.settings.long_quiet_ms
    if not found or not (ended or seen.speech.speech_ms(seen.now_ms) >= UNREACHABLE_SPEECH_MS):
        return None
    return AnswerKind.MAILBOX_UNAVAILABLE, Evidence(Rule.PHRASE, found[0].words)


def hints(seen: Observation) -> Decision:
    """Two different things that machines say, once the speech has ended or is long."""
    settings = seen.settings
    quiet = seen.quiet_ms >= settings.live_quiet_ms
    if not quiet and seen.speech.speech_ms(seen.now_ms) < settings.hint_speech_ms:
        return None
    return _two_hints(seen)


def cadence(seen: Observation) -> Decision:
    """Long speech without a pause, whose words are not known."""
    if seen.has_recognizer and seen.words.text:
        return None
    run_ms = seen.speech.run_ms(seen.now_ms, seen.settings.cadence_pause_ms)
    if run_ms < seen.settings.cadence_speech_ms:
        return None
    return AnswerKind.VOICEMAIL, Evidence(Rule.CADENCE, f"{run_ms:.0f} ms")


def beep(seen: Observation) -> Decision:
    """A beep after a greeting that nobody replied to; or a beep after nothing, and then nothing."""
    spoken = seen.speech.speech_ms(seen.now_ms) >= BEEP_SPEECH_MS
    greeted = seen.beep_ends_speech and (_has_hint(seen) or spoken)
    alone = seen.speech.first_start_ms is None and seen.quiet_since_beep_ms >= seen.settings.message_quiet_ms
    return _BEEPED if (greeted or alone) and not seen.words.contains(PhraseKind.LIVE) else None


def beep_after_waiting(seen: Observation) -> Decision:
    """A beep after a hint: a voicemail has followed a menu, a queue or a call screening, which may beep too."""
    greeted = seen.beep_ends_speech and _has_hint(seen)
    return _BEEPED if greeted and not seen.words.contains(PhraseKind.LIVE) else None


def beep_after_human(seen: Observation) -> Decision:
    """A beep after a hint or after long speech."""
    if not seen.beep_ends_speech or seen.words.contains(PhraseKind.LIVE):
        return None
    greeted = _has_hint(seen) or seen.speech.speech_ms(seen.now_ms) >= BEEP_AFTER_HUMAN_SPEECH_MS
    return _BEEPED if greeted else None


def recording_after_human(seen: Observation, human_ms: float) -> Decision:
    """A recording has paused, was taken for a person at `human_ms`, and goes on without a reply. It may pause again."""
    last_ms = seen.speech.last_start_ms
    run_ms = seen.speech.run_start_ms(seen.settings.cadence_pause_ms)
    if last_ms is None or run_ms is None:
        return None
    begins_soon = run_ms - human_ms <= seen.settings.correction_ms
    lasts = last_ms - human_ms <= LONGEST_PIECES * seen.settings.correction_ms
    strong = phrase(seen) or unreachable(seen) if begins_soon and lasts else None
    goes_on = last_ms - human_ms <= RECORDING_GAP_MS
    if strong or not goes_on or seen.speech.run_ms(seen.now_ms, 0) < HUMAN_HINT_SPEECH_MS:
        return strong
    return _two_hints(seen)


def unavailable_after_voicemail(seen: Observation) -> Decision:
    """The voicemail says that no message can be left."""
    strong = phrase(seen)
    return strong if strong and strong[0] is AnswerKind.MAILBOX_UNAVAILABLE else None


def music(seen: Observation) -> Decision:
    """Sound that goes on, and no speech: a queue that announces nothing."""
    sound_ms = min(seen.sound_ms, seen.now_ms - seen.expected_since_ms)
    if seen.has_spoken or sound_ms < seen.settings.music_ms:
        return None
    return AnswerKind.HOLD_QUEUE, Evidence(Rule.MUSIC, f"{sound_ms:.0f} ms")


def _two_hints(seen: Observation) -> Decision:
    if seen.words.contains(PhraseKind.LIVE):
        return None
    for phrase_kind, kind in HINTS:
        found = seen.words.stable(seen.now_ms, phrase_kind)
        if len(found) >= 2:
            return kind, Evidence(Rule.HINTS, ", ".join(each.words for each in found))
    return None


def _has_hint(seen: Observation) -> bool:
    return bool(seen.words.stable(seen.now_ms, PhraseKind.VOICEMAIL_HINT))
