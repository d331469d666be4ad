"""Text to speech by espeak-ng: all languages that flite lacks, exact word ends, 300 times faster than real time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
import soxr

from config.errors import ModelError
from models.protocols import CostSource, SynthesizedSpeech, VoiceDescription, VoiceSettings, WordTiming
from models.tts.espeak.process_pool import EspeakPool, EspeakSpeech
from models.tts.espeak.worker_process import SONAME
from models.tts.prosody import pitch_range
from models.tts.trimming import trim_silence

NAME: Final = "espeak-ng"
PROCESSES: Final = 2
"""Each is 300 times faster than real time; with two, a slow text does not delay the others."""
_WORDS_PER_MINUTE: Final = 165
_TOKEN: Final = re.compile(r"\S+")
_DASHES: Final = re.compile("[-\u2013\u2014]+")


class EspeakTextToSpeech:
    """espeak-ng's voices for all calls. Voice names are `espeak-ng/de` and so on, one for each language."""

    cost_source: CostSource = "timed with a sentence"
    concurrency: int = PROCESSES

    name = NAME

    def __init__(self, library: str = SONAME) -> None:
        """Start the processes, which list the voices. Raises `StartupError` when the library is missing."""
        self._processes = EspeakPool(PROCESSES, library)
        self._languages = frozenset(self._processes.languages)
        self._threads = ThreadPoolExecutor(PROCESSES, thread_name_prefix=NAME)

    def voices(self) -> Sequence[str]:
        """One voice for each of espeak-ng's language tags."""
        return tuple(f"{NAME}/{language}" for language in self._processes.languages)

    def language_of(self, voice: str) -> str | None:
        """The tag in the voice's name."""
        return voice.removeprefix(f"{NAME}/")

    def describe(self, voice: str) -> VoiceDescription:
        """See `DescribesVoices`."""
        return VoiceDescription(NAME, sample_rate=self._processes.rate)

    async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        """Synthesize one sentence. Raises `ModelError`, also for an unknown voice."""
        language = settings.voice.removeprefix(f"{NAME}/")
        if language not in self._languages:
            raise ModelError(f"espeak-ng has no voice {settings.voice}")
        if not any(character.isalnum() for character in text):
            return SynthesizedSpeech(text, np.zeros(0, np.int16), settings.rate)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._speak, text, language, settings)

    def close(self) -> None:
        """Cancel queued texts, and kill the processes. Idempotent."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._processes.close()

    def _speak(self, text: str, language: str, settings: VoiceSettings) -> SynthesizedSpeech:
        words_per_minute = round(_WORDS_PER_MINUTE * settings.speed)
        speech = self._processes.speak(text, language, words_per_minute, pitch_range(settings.stability))
        part = trim_silence(speech.samples, speech.rate)
        samples = speech.samples[part]
        if len(samples) and speech.rate != settings.rate:
            samples = soxr.resample(samples, speech.rate, settings.rate)
        return SynthesizedSpeech(
            text, samples, settings.rate, word_ends(text, speech, part.start, settings.rate, len(samples))
        )


def word_ends(text: str, speech: EspeakSpeech, start: int, rate: int, length: int) -> tuple[WordTiming, ...]:
    """The ends of the text's tokens (separated by white space) in the audio: characters ascending, samples at `rate` Hz
    ascending and <= `length`. `start` is the index in the speech's samples at which the audio begins. A token without
    words (a dash) ends with the word before it."""
    words: list[WordTiming] = []
    remaining_words = list(speech.words)
    for token in _TOKEN.finditer(text):
        last = 0
        # A dash is not spoken; a word at its position is the one after it.
        while remaining_words and remaining_words[0][0] < token.end() and not _DASHES.fullmatch(token.group()):
            last = max(last, remaining_words.pop(0)[1])
        if not last and not any(character.isalnum() for character in token.group()):
            if words:
                words[-1] = WordTiming(token.end(), words[-1].sample_end)
            continue
        before = words[-1].sample_end if words else 0
        sample = min(length, max(before, round((last - start) * rate / speech.rate)))
        words.append(WordTiming(token.end(), sample))
    return tuple(words)
