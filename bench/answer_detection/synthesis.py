"""Synthesis of the made calls' audio."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Final

import numpy as np

from bench.answer_detection import sounds
from bench.answer_detection.corpus import Call, Condition, Part, Play, Quiet, Say
from media.audio_port import Samples
from models.protocols import SynthesizedSpeech, VoiceSettings
from models.tts.espeak.text_to_speech import EspeakTextToSpeech
from models.tts.flite.text_to_speech import FliteTextToSpeech

SPEECH_RMS: Final = 2000.0
"""Level of all speech: -24 dB of a full-scale square wave."""
LEVELS: Final = (1.0, 0.4, 1.6)
"""Factors of it, in turn."""
LEAD_MS: Final = 200.0
"""Audio before the call's parts."""


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word as it is written, and when it ends in the call, ms."""

    text: str
    end_ms: float


@dataclass(frozen=True, slots=True)
class CallAudio:
    """A call's audio at its rate, its words, and when its first sound (speech, tone, music) begins, ms."""

    samples: Samples
    words: tuple[SpokenWord, ...]
    first_sound_ms: float


class CallSynthesis:
    """Renders calls; the same call always the same."""

    def __init__(self) -> None:
        self._flite, self._espeak = FliteTextToSpeech(), EspeakTextToSpeech()
        self._spoken: dict[tuple[str, str, float], SynthesizedSpeech] = {}

    async def render(self, call: Call) -> CallAudio:
        """The audio of a call."""
        rng = np.random.default_rng(call.number)
        level = SPEECH_RMS * LEVELS[call.number % len(LEVELS)]
        pieces, words, first = [sounds.silence(LEAD_MS)], list[SpokenWord](), -1.0
        for part in call.parts:
            at_ms = sum(map(len, pieces)) * 1000 / sounds.RATE
            if first < 0 and not isinstance(part, Quiet):
                first = at_ms
            if isinstance(part, Say):
                speech = await self._speak(part.text, call.voice, call.condition)
                words += _words(part.text, speech, at_ms)
                sound = speech.samples.astype(np.float64)
                pieces.append(sound * (level / np.sqrt((sound**2).mean())))
            else:
                pieces.append(_sound(part, rng))
        mixed = np.concatenate(pieces)
        mixed += self._noise(call.condition, len(mixed), level, rng)
        return CallAudio(sounds.line(mixed, call.condition.rate), tuple(words), max(first, 0.0))

    def close(self) -> None:
        """End the voices."""
        self._flite.close()
        self._espeak.close()

    async def _speak(self, text: str, voice: str, condition: Condition) -> SynthesizedSpeech:
        key = (text, voice, condition.speed)
        if key not in self._spoken:
            ctypes.CDLL(None).srand(1)  # flite's excitation depends on it
            settings = VoiceSettings(voice, condition.speed, 0.5, sounds.RATE)
            engine = self._flite if voice.startswith("flite/") else self._espeak
            self._spoken[key] = await engine.synthesize(text, settings)
        return self._spoken[key]

    @staticmethod
    def _noise(condition: Condition, length: int, level: float, rng: np.random.Generator) -> sounds.Sound:
        """The condition's noise; a clean line has the idle noise of a telephone."""
        if not condition.noise:
            return sounds.noise(length, "white", rng) * 4
        return sounds.noise(length, condition.noise, rng) * (level * 10 ** (-condition.ratio_db / 20))


def _sound(part: Part, rng: np.random.Generator) -> sounds.Sound:
    match part:
        case Play(what="tone", ms=ms, hz=hz):
            return sounds.tone(ms, *hz)
        case Play(what="music", ms=ms):
            return sounds.music(ms, rng)
        case Play():
            return sounds.special_information_tones()
        case Quiet(ms=ms):
            return sounds.silence(ms)
    raise TypeError(part)


def _words(text: str, speech: SynthesizedSpeech, start_ms: float) -> list[SpokenWord]:
    words: list[SpokenWord] = []
    begin = 0
    for timing in speech.words:
        spoken = text[begin : timing.char_end].strip()
        words.append(SpokenWord(spoken, start_ms + timing.sample_end * 1000 / speech.rate))
        begin = timing.char_end
    return words
