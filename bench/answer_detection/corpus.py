"""The made calls, in a fixed order: who or what answers, how it sounds, and which verdicts are right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final, Literal

from bench.answer_detection.texts import DEVELOPMENT, HELD_OUT, SECOND_TURNS, Texts
from calls.answer_detection.events import AnswerKind

Split = Literal["development", "held-out"]
FLITE_VOICES: Final = ("flite/slt", "flite/rms", "flite/awb", "flite/kal16")
ESPEAK_VOICES: Final = {"fr": "fr-fr"}
"""Where the voice's name is not the language."""


@dataclass(frozen=True, slots=True)
class Condition:
    """How a call sounds: its sample rate (Hz), noise and its level under the speech (dB), the tempo of the speech."""

    rate: int
    noise: str = ""
    ratio_db: float = 0.0
    speed: float = 1.0


CONDITIONS: Final = (
    Condition(8000),
    Condition(8000, "white", 25),
    Condition(16_000, speed=1.1),
    Condition(8000, "cafe", 15),
    Condition(8000, "office", 20, 0.9),
    Condition(8000, "white", 15, 1.1),
    Condition(16_000, "cafe", 20),
)


@dataclass(frozen=True, slots=True)
class Say:
    """Speech."""

    text: str


@dataclass(frozen=True, slots=True)
class Quiet:
    """Nothing but the call's noise."""

    ms: float


@dataclass(frozen=True, slots=True)
class Play:
    """Tones at these frequencies, music, or special information tones."""

    what: Literal["tone", "music", "sit"]
    ms: float = 0.0
    hz: tuple[float, ...] = ()


Part = Say | Quiet | Play
END: Final = Quiet(1500)
"""The end of a call's audio; answer detection then goes on in quiet."""


@dataclass(frozen=True, slots=True)
class Call:
    """One made call. `expected`: its verdicts in order; the last one is that of the confusion table."""

    number: int
    split: Split
    scenario: str
    language: str
    voice: str
    condition: Condition
    parts: tuple[Part, ...]
    expected: tuple[AnswerKind, ...]

    @property
    def is_human(self) -> bool:
        """A person answers, and nothing else is heard before."""
        return self.expected == (AnswerKind.HUMAN,)


_KINDS: Final = {
    "short_answer": AnswerKind.HUMAN,
    "business_greeting": AnswerKind.HUMAN,
    "live_unavailable": AnswerKind.HUMAN,
    "long_talker": AnswerKind.HUMAN,
    "voicemail": AnswerKind.VOICEMAIL,
    "mailbox_unavailable": AnswerKind.MAILBOX_UNAVAILABLE,
    "call_screening": AnswerKind.CALL_SCREENING,
    "menu": AnswerKind.MENU,
    "hold_queue": AnswerKind.HOLD_QUEUE,
}
_TWICE: Final = frozenset({"short_answer", "business_greeting", "live_unavailable"})
"""Scenarios whose English texts each voice speaks in two conditions."""
_BEEPS: Final = (
    (Play("tone", 400, (1000.0,)),),
    (Play("tone", 250, (1400.0,)),),
    (),
    (Play("tone", 700, (850.0,)),),
    (Play("tone", 150, (440.0,)),),
)
_STARTS_MS: Final = (300.0, 1000.0, 600.0, 2500.0)


def corpus() -> list[Call]:
    """All calls."""
    numbers = count()
    calls: list[Call] = []
    splits: tuple[tuple[Split, Texts], ...] = (("development", DEVELOPMENT), ("held-out", HELD_OUT))
    for split, texts in splits:
        for scenario, languages in texts.items():
            for language, lines in languages.items():
                for text in lines:
                    for voice in _voices(language, scenario):
                        calls.append(_spoken(next(numbers), split, scenario, language, voice, text))
        calls += _unspoken(numbers, split)
    return calls


def _voices(language: str, scenario: str) -> tuple[str, ...]:
    if language == "en":
        return FLITE_VOICES * (2 if scenario in _TWICE else 1)
    return (f"espeak-ng/{ESPEAK_VOICES.get(language, language)}",) * 2


def _spoken(number: int, split: Split, scenario: str, language: str, voice: str, text: str) -> Call:
    kind = _KINDS[scenario]
    expected: tuple[AnswerKind, ...]
    match kind:
        case AnswerKind.HUMAN:
            parts, expected = _human(number, language, text), (kind,)
        case AnswerKind.VOICEMAIL:
            parts, expected = _voicemail(number, text), (kind,)
        case AnswerKind.MAILBOX_UNAVAILABLE:
            sit = (Play("sit"), Quiet(300)) if number % 2 else ()
            parts, expected = (Quiet(300), *sit, Say(text), END), (kind,)
        case AnswerKind.CALL_SCREENING if language == "en":
            parts, expected = _screening(number, text)
        case AnswerKind.HOLD_QUEUE if language == "en":
            parts, expected = _queue(number, text)
        case _:
            parts, expected = (Quiet(500), Say(text), END), (kind,)
    return Call(number, split, scenario, language, voice, CONDITIONS[number % len(CONDITIONS)], parts, expected)


def _human(number: int, language: str, text: str) -> tuple[Part, ...]:
    """A person who waits for the agent's first words (not in the audio: the agent is another channel); every third one
    then replies."""
    second = SECOND_TURNS[number % len(SECOND_TURNS)]
    replies_too = language == "en" and number % 3 == 0
    replies = (Quiet(4000), Say(second)) if replies_too else ()
    return (Quiet(_STARTS_MS[number % len(_STARTS_MS)]), Say(text), *replies, END)


def _voicemail(number: int, text: str) -> tuple[Part, ...]:
    """A greeting, of every third call with a pause of half a second after its first word; beep or none; quiet."""
    first, _, rest = text.partition(" ")
    spoken = (Say(first), Quiet(500), Say(rest)) if number % 3 == 0 else (Say(text),)
    return (Quiet(500), *spoken, Quiet(700), *_BEEPS[number % len(_BEEPS)], END)


def _screening(number: int, text: str) -> tuple[tuple[Part, ...], tuple[AnswerKind, ...]]:
    """After the agent's reply the person takes the call, or a voicemail does."""
    start = (Quiet(500), Say(text), Quiet(6000))
    if number % 2:
        return (*start, Say("Hello?"), END), (AnswerKind.CALL_SCREENING, AnswerKind.HUMAN)
    refusal = "The person you are calling can not take your call right now. Please leave a message after the tone."
    end = (Say(refusal), Quiet(500), Play("tone", 400, (1000.0,)), END)
    return (*start, *end), (AnswerKind.CALL_SCREENING, AnswerKind.VOICEMAIL)


def _queue(number: int, text: str) -> tuple[tuple[Part, ...], tuple[AnswerKind, ...]]:
    """Announcement and music, twice; then, in every second call, a person."""
    waiting = (Quiet(300), Say(text), Quiet(400), Play("music", 6000), Quiet(300), Say(text), Play("music", 5000))
    if number % 2:
        return (*waiting, END), (AnswerKind.HOLD_QUEUE,)
    person = (Quiet(500), Say("Hello, this is Anna, how can I help you?"), END)
    return (*waiting, *person), (AnswerKind.HOLD_QUEUE, AnswerKind.HUMAN)


def _unspoken(numbers: Iterator[int], split: Split) -> Iterator[Call]:
    """Fax, silence, a beep alone, special information tones alone, and a ringback tone before a person."""
    rings = (Play("tone", 2000, (440.0, 480.0)), Quiet(4000))
    eu_rings = (Play("tone", 1000, (425.0,)), Quiet(4000))
    fax = (Quiet(500), Play("tone", 3000, (2100.0,)), END)
    hello = (Say("Hello?"), END)
    scenarios: tuple[tuple[str, tuple[Part, ...], AnswerKind], ...] = (
        ("fax", fax, AnswerKind.FAX),
        ("calling_fax", (Quiet(500), *(Play("tone", 500, (1100.0,)), Quiet(3000)) * 3), AnswerKind.FAX),
        ("silence", (Quiet(3000),), AnswerKind.SILENCE),
        ("beep_alone", (Quiet(1500), Play("tone", 500, (1000.0,)), END), AnswerKind.VOICEMAIL),
        ("tones_alone", (Quiet(300), Play("sit"), END), AnswerKind.MAILBOX_UNAVAILABLE),
        ("ringback", (Quiet(300), *rings * 2, *hello), AnswerKind.HUMAN),
        ("ringback", (Quiet(300), *eu_rings * 2, *hello), AnswerKind.HUMAN),
    )
    for scenario, parts, kind in scenarios:
        for condition in (CONDITIONS[0], CONDITIONS[5]):
            yield Call(next(numbers), split, scenario, "en", FLITE_VOICES[0], condition, parts, (kind,))
