"""Real models, loaded once for all tests of this folder, and real speech through a telephone line."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soxr

from media.ports import Samples
from models.espeak_tts import EspeakTextToSpeech
from models.flite_tts import FliteTextToSpeech
from models.pocketsphinx_stt import PocketsphinxSpeechToText
from models.protocols import VoiceSettings


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
def espeak() -> EspeakTextToSpeech:
    return EspeakTextToSpeech()


class Caller:
    """Speaks a sentence with flite; `line` is what comes out of a telephone line: 300..3400 Hz, mu-law, 8 kHz."""

    def __init__(self, tts: FliteTextToSpeech, folder: Path) -> None:
        self._tts = tts
        self._folder = folder

    def voice(self, text: str, voice: str = "rms", rate: int = 16000) -> Samples:
        settings = VoiceSettings(f"flite/{voice}", 1.0, 0.5, rate)
        samples = asyncio.run(self._tts.synthesize(text, settings)).samples
        pause = np.zeros(rate // 5, np.int16)
        return np.concatenate((pause, samples, pause))

    def line(self, text: str, voice: str = "rms") -> Samples:
        source = self._folder / "voice.raw"
        source.write_bytes(self.voice(text, voice).tobytes())
        raw = ["-t", "raw", "-e", "signed", "-b", "16", "-c", "1", "-r"]
        narrow = [*"sox -G".split(), *raw, "16000", str(source), *"-t raw -r 8000 -e mu-law -".split()]
        coded = subprocess.run([*narrow, "sinc", "300-3400"], check=True, capture_output=True).stdout
        back = [*"sox -t raw -r 8000 -e mu-law -c 1 -".split(), *raw, "8000", "-"]
        return np.frombuffer(subprocess.run(back, check=True, capture_output=True, input=coded).stdout, np.int16)


@pytest.fixture(scope="session")
def caller(flite: FliteTextToSpeech, tmp_path_factory: pytest.TempPathFactory) -> Caller:
    return Caller(flite, tmp_path_factory.mktemp("caller"))


def wide(samples: Samples) -> Samples:
    """8 kHz sound at 16 kHz."""
    return soxr.resample(samples, 8000, 16000)
