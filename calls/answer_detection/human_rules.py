"""Evidence of a person, who speaks and then waits, and of nobody. Each rule judges an observation."""

from __future__ import annotations

from calls.answer_detection.events import AnswerKind, Evidence, Rule
from calls.answer_detection.observation import Decision, Observation
from calls.answer_detection.phrases.phrase_set import PhraseKind


def person(seen: Observation) -> Decision:
    """Speech without words of a machine, then quiet."""
    speech, settings = seen.speech, seen.settings
    if speech.first_start_ms is None or speech.speaking:
        return _greeting_words(seen)
    left_ms = settings.short_verdict_ms - seen.span_ms
    short_quiet = min(settings.short_quiet_ms, left_ms) if left_ms >= settings.min_quiet_ms else settings.short_quiet_ms
    is_short = seen.span_ms <= settings.short_speech_ms
    if seen.words.stable(seen.now_ms, PhraseKind.LIVE):
        needed = min(settings.live_quiet_ms, short_quiet) if is_short else settings.live_quiet_ms
        rule = Rule.LIVE_WORDS
    elif seen.has_machine_words:
        needed, rule = settings.hint_quiet_ms, Rule.SPEECH_THEN_QUIET
    elif is_short:
        needed, rule = short_quiet, Rule.SHORT_ANSWER
    elif seen.has_recognizer and not seen.words.text:
        needed, rule = settings.late_words_quiet_ms, Rule.SPEECH_THEN_QUIET
    else:
        needed, rule = settings.long_quiet_ms, Rule.SPEECH_THEN_QUIET
    return _human(seen, rule) if seen.quiet_ms >= needed else None


def live_words(seen: Observation) -> Decision:
    """Words that only a listener says, after a screening, a menu or a queue."""
    if seen.speech.speaking or seen.speech.first_start_ms is None:
        return None
    heard = bool(seen.words.stable(seen.now_ms, PhraseKind.LIVE))
    return _human(seen, Rule.LIVE_WORDS) if heard and seen.quiet_ms >= seen.settings.live_quiet_ms else None


def short_turn(seen: Observation) -> Decision:
    """A short turn after a screening, a menu or a queue, with words that are not theirs, or without a recognizer."""
    if seen.speech.first_start_ms is None or not seen.is_short_answer:
        return None
    has_words = not seen.has_recognizer or bool(seen.words.text)
    return _human(seen, Rule.SHORT_ANSWER) if has_words and seen.quiet_ms >= seen.settings.short_quiet_ms else None


def silence(seen: Observation) -> Decision:
    """Nobody has spoken."""
    no_speech_ms = seen.settings.no_speech_ms
    if seen.has_spoken or seen.now_ms - seen.expected_since_ms < no_speech_ms:
        return None
    return AnswerKind.SILENCE, Evidence(Rule.NO_SPEECH, f"{no_speech_ms:.0f} ms")


def window_over(seen: Observation) -> tuple[AnswerKind, Evidence]:
    """The window closes without a verdict: what is unknown counts as a person."""
    if not seen.has_spoken:
        return AnswerKind.SILENCE, Evidence(Rule.NO_SPEECH, "")
    return _human(seen, Rule.WINDOW_OVER)


def _greeting_words(seen: Observation) -> Decision:
    """A short answer that only the recognizer has, or whose end only the recognizer knows."""
    start, settings = seen.speech.first_start_ms, seen.settings
    heard = seen.words.is_greeting() and seen.now_ms - seen.words.changed_ms >= settings.short_quiet_ms
    if not heard or (start is not None and seen.now_ms - start < settings.short_verdict_ms):
        return None
    return AnswerKind.HUMAN, Evidence(Rule.GREETING_WORDS, seen.words.text)


def _human(seen: Observation, rule: Rule) -> tuple[AnswerKind, Evidence]:
    return AnswerKind.HUMAN, Evidence(rule, f"{seen.span_ms:.0f} ms")
