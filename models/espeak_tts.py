"""Text to speech by espeak-ng, a process per sentence: every language that flite does not speak."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape

import numpy as np
import soxr

from config.errors import ModelError, StartupError
from media.ports import Samples
from models.intonation import pitch_range
from models.protocols import Speech, VoiceSettings
from models.speech_edges import sounding
from models.word_ends import estimated_word_ends

NAME: Final = "espeak-ng"
_WORDS_PER_MINUTE: Final = 165
_TIMEOUT_S: Final = 10.0
_REMEDY: Final = "install the Debian package espeak-ng"
_HEADER: Final = 44
"""Bytes of the WAV header that espeak-ng writes; its sizes are not set when it writes to a pipe."""


class EspeakTextToSpeech:
    """espeak-ng's voices for all calls. Voice names are `espeak-ng/de` and so on, one for each language."""

    name = NAME

    def __init__(self, program: str = NAME) -> None:
        """Ask the program for its voices. Raises `StartupError` when it is missing or does not answer."""
        path = shutil.which(program)
        if path is None:
            raise StartupError(f"the program {program} is not there: {_REMEDY}")
        self._path = path
        self._languages = _languages(path)
        self._free = asyncio.Semaphore(os.cpu_count() or 2)

    def voices(self) -> Sequence[str]:
        """One voice for each language tag that espeak-ng knows."""
        return tuple(f"{NAME}/{language}" for language in self._languages)

    def language_of(self, voice: str) -> str | None:
        """Its name is the tag."""
        return voice.removeprefix(f"{NAME}/")

    async def synthesize(self, text: str, settings: VoiceSettings) -> Speech:
        """Speak one sentence. Raises `ModelError`, for an unknown voice too."""
        language = settings.voice.removeprefix(f"{NAME}/")
        if language not in self._languages:
            raise ModelError(f"espeak-ng has no voice {settings.voice}")
        return await self._speak(text, language, settings)

    async def _speak(self, text: str, language: str, settings: VoiceSettings) -> Speech:
        if not any(character.isalnum() for character in text):
            return Speech(text, np.zeros(0, np.int16), settings.rate)
        words_per_minute = str(round(_WORDS_PER_MINUTE * settings.speed))
        arguments = ("--stdout", "--stdin", "-b", "1", "-v", language, "-s", words_per_minute)
        moves = pitch_range(settings.stability)
        async with self._free:
            if moves == 1:
                sound = await _run(self._path, arguments, text)
            else:  # Only SSML can say it.
                markup = f'<prosody range="{moves:.0%}">{escape(text)}</prosody>'
                sound = await _run(self._path, (*arguments, "-m"), markup)
        samples, rate = _read_wave(sound)
        samples = samples[sounding(samples, rate)]
        if rate != settings.rate:
            samples = soxr.resample(samples, rate, settings.rate)
        return Speech(text, samples, settings.rate, estimated_word_ends(text, samples, settings.rate))


async def _run(path: str, arguments: tuple[str, ...], text: str) -> bytes:
    """What espeak-ng writes for a text. A process that is too slow, or no longer wanted, is killed."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(path, *arguments, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            output, errors = await process.communicate(text.encode())
    except TimeoutError as error:
        raise ModelError(f"espeak-ng took more than {_TIMEOUT_S:.0f} s for a sentence") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode or len(output) <= _HEADER:
        message = errors.decode(errors="replace").strip()[:200]
        raise ModelError(f"espeak-ng failed with status {process.returncode}: {message}")
    return output


def _read_wave(sound: bytes) -> tuple[Samples, int]:
    """Samples and rate of espeak-ng's mono 16-bit WAV output."""
    rate = int.from_bytes(sound[24:28], "little")
    body = sound[_HEADER : _HEADER + (len(sound) - _HEADER) // 2 * 2]
    return np.frombuffer(body, "<i2").astype(np.int16), rate


def _languages(path: str) -> tuple[str, ...]:
    """The language tags of `espeak-ng --voices`, in its order: the second column. Voices of the file folder mb/ need
    data that espeak-ng does not bring."""
    try:
        done = subprocess.run([path, "--voices"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise StartupError(f"{path} does not list its voices ({error}): {_REMEDY}") from error
    rows = (line.split() for line in done.stdout.splitlines()[1:])
    return tuple(dict.fromkeys(row[1] for row in rows if not row[4].startswith("mb/")))
