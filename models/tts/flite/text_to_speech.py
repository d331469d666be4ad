"""Text to speech by flite: English, exact word ends, about 25 times faster than real time."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
import soxr

from config.errors import ModelError
from models.protocols import CostSource, SynthesizedSpeech, VoiceDescription, VoiceSettings, WordTiming
from models.tts.flite.bindings import SAMPLE_RATE, FliteLibrary, Token, Utterance
from models.tts.prosody import pitch_range
from models.tts.trimming import trim_silence

NAME: Final = "flite"
_ASCII_EQUIVALENTS: Final = {
    **dict.fromkeys(range(0x2018, 0x201C), "'"),
    **dict.fromkeys((*range(0x201C, 0x2020), 0xAB, 0xBB), '"'),
    **dict.fromkeys(range(0x2010, 0x2016), "-"),
    0x2026: ".",
}
"""Quotation marks, dashes and the ellipsis in ASCII, one character for one, so that positions in the text stay
valid."""


class FliteTextToSpeech:
    """flite's voices for all calls, in a thread of their own. Voice names are `flite/slt` and so on."""

    cost_source: CostSource = "timed with a sentence"
    concurrency: int = 1

    name = NAME

    def __init__(self) -> None:
        """Load the libraries. Raises `StartupError` when they are missing."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=NAME)
        self._library = self._thread.submit(FliteLibrary).result()

    def voices(self) -> Sequence[str]:
        """The installed voices, the best first."""
        return tuple(f"{NAME}/{voice}" for voice in self._library.voices)

    def language_of(self, voice: str) -> str | None:
        """Always English."""
        return "en"

    def describe(self, voice: str) -> VoiceDescription:
        """See `DescribesVoices`."""
        return VoiceDescription(NAME, sample_rate=SAMPLE_RATE)

    async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        """Synthesize one sentence. Raises `ModelError`, also for an unknown voice."""
        if settings.voice not in self.voices():
            raise ModelError(f"flite has no voice {settings.voice}")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._speak, text, settings)

    def close(self) -> None:
        """Cancel queued sentences; the thread ends with its current one. Does not wait. Idempotent."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _speak(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        plain = to_ascii(text)
        if not any(character.isalnum() for character in plain):
            return SynthesizedSpeech(text, np.zeros(0, np.int16), settings.rate)
        voice = settings.voice.removeprefix(f"{NAME}/")
        utterance = self._library.speak(plain, voice, 1 / settings.speed, pitch_range(settings.stability))
        part = trim_silence(utterance.samples, utterance.rate)
        samples = utterance.samples[part]
        if utterance.rate != settings.rate:
            samples = soxr.resample(samples, utterance.rate, settings.rate)
        words = word_ends(plain, utterance, part.start, settings.rate, len(samples))
        return SynthesizedSpeech(text, samples, settings.rate, words)


def to_ascii(text: str) -> str:
    """The text in flite's character set, with the same length: accents dropped, a space for other characters."""
    return "".join(_to_ascii(character) for character in text.translate(_ASCII_EQUIVALENTS))


def word_ends(text: str, utterance: Utterance, start: int, rate: int, length: int) -> tuple[WordTiming, ...]:
    """The ends of the text's tokens in the audio: characters ascending, samples at `rate` Hz ascending and <= `length`.
    `start` is the index in the utterance's samples at which the audio begins. A token that is not spoken (a dash) ends
    with the one before it."""
    words: list[WordTiming] = []
    position = 0
    offset_s = start / utterance.rate
    for token in utterance.tokens:
        position = _token_end(token, text, position)
        sample = words[-1].sample_end if words else 0
        if token.end_s is not None:
            sample = min(length, max(sample, round((token.end_s - offset_s) * rate)))
        if words and (token.end_s is None or words[-1].char_end == position):
            words.pop()
        words.append(WordTiming(position, sample))
    return tuple(words)


def _token_end(token: Token, text: str, position: int) -> int:
    """The position after a token and its punctuation, searched from `position` on; `position` if it is not found."""
    found = text.find(token.name, position)
    if found < 0:
        return position
    end = found + len(token.name)
    return end + len(token.punctuation) if text.startswith(token.punctuation, end) else end


def _to_ascii(character: str) -> str:
    if character.isascii():
        return character if character.isprintable() else " "
    base = unicodedata.normalize("NFKD", character)[0]
    return base if base.isascii() and base.isprintable() else " "
