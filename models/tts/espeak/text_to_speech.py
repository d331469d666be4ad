"""Text to speech by espeak-ng: every language that flite does not speak, exact word ends, 300 times faster than
speaking."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
import soxr

from config.errors import ModelError
from models.protocols import CostSource, SynthesizedSpeech, VoiceSettings, WordTiming
from models.tts.espeak.process_pool import EspeakPool, Utterance
from models.tts.espeak.worker_process import SONAME
from models.tts.prosody import pitch_range
from models.tts.trimming import trim_silence

NAME: Final = "espeak-ng"
PROCESSES: Final = 2
"""Each speaks 300 times faster than a caller listens; with two, a text that takes its time holds up no other."""
_WORDS_PER_MINUTE: Final = 165
_TOKEN: Final = re.compile(r"\S+")
_DASHES: Final = re.compile("[-\u2013\u2014]+")


class EspeakTextToSpeech:
    """espeak-ng's voices for all calls. Voice names are `espeak-ng/de` and so on, one for each language."""

    cost_source: CostSource = "timed with a sentence"
    concurrency: int = PROCESSES

    name = NAME

    def __init__(self, library: str = SONAME) -> None:
        """Start the library and ask it for its voices. Raises `StartupError` when it is missing."""
        self._processes = EspeakPool(PROCESSES, library)
        self._languages = frozenset(self._processes.languages)
        self._threads = ThreadPoolExecutor(PROCESSES, thread_name_prefix=NAME)

    def voices(self) -> Sequence[str]:
        """One voice for each language tag that espeak-ng knows."""
        return tuple(f"{NAME}/{language}" for language in self._processes.languages)

    def language_of(self, voice: str) -> str | None:
        """Its name is the tag."""
        return voice.removeprefix(f"{NAME}/")

    async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        """Speak one sentence. Raises `ModelError`, for an unknown voice too."""
        language = settings.voice.removeprefix(f"{NAME}/")
        if language not in self._languages:
            raise ModelError(f"espeak-ng has no voice {settings.voice}")
        if not any(character.isalnum() for character in text):
            return SynthesizedSpeech(text, np.zeros(0, np.int16), settings.rate)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._speak, text, language, settings)

    def close(self) -> None:
        """Drop what waits, and end the processes. Idempotent."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._processes.close()

    def _speak(self, text: str, language: str, settings: VoiceSettings) -> SynthesizedSpeech:
        words_per_minute = round(_WORDS_PER_MINUTE * settings.speed)
        utterance = self._processes.speak(text, language, words_per_minute, pitch_range(settings.stability))
        part = trim_silence(utterance.samples, utterance.rate)
        samples = utterance.samples[part]
        if len(samples) and utterance.rate != settings.rate:
            samples = soxr.resample(samples, utterance.rate, settings.rate)
        return SynthesizedSpeech(
            text, samples, settings.rate, word_ends(text, utterance, part.start, settings.rate, len(samples))
        )


def word_ends(text: str, utterance: Utterance, start: int, rate: int, length: int) -> tuple[WordTiming, ...]:
    """Where what white space parts in the text ends in the sound: characters ascending, samples at `rate` Hz ascending
    and <= `length`. `start` is the index in the utterance's samples at which the sound begins. What is not spoken (a
    dash) is heard with the word before it."""
    words: list[WordTiming] = []
    spoken = list(utterance.words)
    for token in _TOKEN.finditer(text):
        last = 0
        # A dash is not said; what seems to be at its place is the word behind it.
        while spoken and spoken[0][0] < token.end() and not _DASHES.fullmatch(token.group()):
            last = max(last, spoken.pop(0)[1])
        if not last and not any(character.isalnum() for character in token.group()):
            if words:
                words[-1] = WordTiming(token.end(), words[-1].sample_end)
            continue
        before = words[-1].sample_end if words else 0
        sample = min(length, max(before, round((last - start) * rate / utterance.rate)))
        words.append(WordTiming(token.end(), sample))
    return tuple(words)
