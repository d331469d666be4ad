"""Real models, loaded once for all tests of this folder, and real speech through a telephone line."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest
import soxr

from media.audio_port import Samples
from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText
from models.tts.espeak.text_to_speech import EspeakTextToSpeech
from models.tts.flite.bindings import FliteLibrary
from models.tts.flite.text_to_speech import FliteTextToSpeech


@pytest.fixture(scope="session")
def recognizer() -> Iterator[PocketsphinxSpeechToText]:
    stt = PocketsphinxSpeechToText(threads=2, decoders=2)
    yield stt
    stt.close()


@pytest.fixture(scope="session")
def flite() -> Iterator[FliteTextToSpeech]:
    tts = FliteTextToSpeech()
    yield tts
    tts.close()


@pytest.fixture(scope="session")
def espeak() -> Iterator[EspeakTextToSpeech]:
    tts = EspeakTextToSpeech()
    yield tts
    tts.close()


class Caller:
    """Speaks a sentence with flite, with 0.2 s of silence around it."""

    def __init__(self) -> None:
        self._library = FliteLibrary()

    def voice(self, text: str, voice: str = "rms") -> Samples:
        """At 16 kHz, in full. Always the same: flite shapes its excitation with the C library's random numbers."""
        ctypes.CDLL(None).srand(1)
        utterance = self._library.speak(text, voice, 1.0)
        assert utterance.rate == 16000
        return np.pad(utterance.samples, 3200)

    def line(self, text: str, voice: str = "rms") -> Samples:
        """Audio after a telephone line: 300 to 3400 Hz, 8 kHz, mu-law (ITU-T G.711)."""
        sound = self.voice(text, voice) / 32768
        spectrum = np.fft.rfft(sound)
        frequency = np.fft.rfftfreq(len(sound), 1 / 16000)
        spectrum[(frequency < 300) | (frequency > 3400)] = 0
        narrow = np.clip(soxr.resample(np.fft.irfft(spectrum, len(sound)), 16000, 8000), -1, 1)
        code = np.rint(np.sign(narrow) * np.log1p(255 * np.abs(narrow)) / np.log(256) * 127) / 127
        return (np.sign(code) * (256 ** np.abs(code) - 1) / 255 * 32767).astype(np.int16)


@pytest.fixture(scope="session")
def caller() -> Caller:
    return Caller()
