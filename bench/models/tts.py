"""Text to speech: latency of the first clause and real-time factor of a Piper voice of real shape
(`bench.models.random_vits`), flite, espeak-ng as a library and as a program started for each sentence; and the latency
of the speech caches."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.models import random_vits
from models.protocols import SynthesizedSpeech, TextToSpeech, VoiceSettings
from models.tts.cache import SpeechCache
from models.tts.disk_cache import SpeechDiskCache
from models.tts.espeak.text_to_speech import EspeakTextToSpeech
from models.tts.flite.text_to_speech import FliteTextToSpeech
from models.tts.piper.text_to_speech import PiperTextToSpeech

FIRST_CLAUSE: Final = "Thank you for calling,"
SENTENCE: Final = "we are open from nine in the morning to five in the afternoon on all days of the week but Sunday."
RATE: Final = 8000

Row = dict[str, Any]


async def run(quick: bool) -> list[Row]:
    """The rows of the table. Takes half a minute; with `quick` some seconds."""
    times = 3 if quick else 10
    with tempfile.TemporaryDirectory(prefix="trunkline-") as name:
        folder = Path(name)
        voice = await asyncio.to_thread(random_vits.write, folder)
        piper = await asyncio.to_thread(PiperTextToSpeech, {"medium": voice})
        flite, espeak = await asyncio.to_thread(FliteTextToSpeech), await asyncio.to_thread(EspeakTextToSpeech)
        rows = [
            await _row("piper, medium shape", piper, "piper/medium", times),
            await _row("flite", flite, "flite/slt", times),
            await _row("espeak-ng, library", espeak, "espeak-ng/en-us", times),
        ]
        if shutil.which("espeak-ng"):
            rows.append(await _program(times))
        for at_once in (1, 4) if quick else (1, 2, 4, 8):
            rows.append(await _concurrent(piper, at_once))
        rows += await _caches(piper, folder, times)
        for model in (piper, flite, espeak):
            model.close()
    return rows


async def _row(name: str, model: TextToSpeech, voice: str, times: int) -> Row:
    settings = VoiceSettings(voice, 1.0, 0.5, RATE)
    first = [await _ms(lambda: model.synthesize(FIRST_CLAUSE, settings)) for _ in range(times)]
    long = [await _ms(lambda: model.synthesize(SENTENCE, settings)) for _ in range(times)]
    speech = await model.synthesize(SENTENCE, settings)
    seconds = len(speech.samples) / speech.rate
    return {
        "what": name,
        "first_clause_ms": round(statistics.median(first), 1),
        "real_time_factor": round(statistics.median(long) / 1000 / seconds, 4),
    }


async def _program(times: int) -> Row:
    def speak(text: str) -> bytes:
        arguments = ["espeak-ng", "--stdout", "-v", "en-us", "-s", "165", text]
        return subprocess.run(arguments, capture_output=True, check=True).stdout

    first = [await _ms(lambda: asyncio.to_thread(speak, FIRST_CLAUSE)) for _ in range(times)]
    long = [await _ms(lambda: asyncio.to_thread(speak, SENTENCE)) for _ in range(times)]
    seconds = (len(speak(SENTENCE)) - 44) / 2 / 22050
    return {
        "what": "espeak-ng, a process per sentence",
        "first_clause_ms": round(statistics.median(first), 1),
        "real_time_factor": round(statistics.median(long) / 1000 / seconds, 4),
    }


async def _concurrent(piper: PiperTextToSpeech, at_once: int) -> Row:
    """Synthesizes `at_once` sentences at the same time. Returns the latency of the last one, the speed as a multiple of
    real time, and the CPU time per second of speech, which other load on the machine hardly changes."""
    settings = VoiceSettings("piper/medium", 1.0, 0.5, RATE)
    began, cpu_s = time.perf_counter(), time.process_time()
    speeches = await asyncio.gather(*(piper.synthesize(f"{number}, {SENTENCE}", settings) for number in range(at_once)))
    elapsed_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
    speech_s = sum(len(speech.samples) / speech.rate for speech in speeches)
    return {
        "what": f"piper, {at_once} concurrent sentences",
        "last_ms": round(elapsed_s * 1000),
        "times_real_time": round(speech_s / elapsed_s, 1),
        "cpu_s_per_s": round(cpu_s / speech_s, 3),
    }


async def _caches(piper: PiperTextToSpeech, folder: Path, times: int) -> list[Row]:
    settings = VoiceSettings("piper/medium", 1.0, 0.5, RATE)
    files = await asyncio.to_thread(SpeechDiskCache, folder / "speech", 1 << 26)
    await SpeechCache(disk_cache=files).get_or_synthesize(piper, SENTENCE, settings)
    await asyncio.to_thread(files.close)
    files = await asyncio.to_thread(SpeechDiskCache, folder / "speech", 1 << 26)
    disk, memory = [], []
    for _ in range(times):
        cache = SpeechCache(disk_cache=files)
        ask = partial(cache.get_or_synthesize, piper, SENTENCE, settings)
        disk.append(await _ms(ask))
        memory.append(await _ms(ask))
    await asyncio.to_thread(files.close)
    return [
        {"what": "cached on disk", "sentence_ms": round(statistics.median(disk), 2)},
        {"what": "cached in memory", "sentence_ms": round(statistics.median(memory), 3)},
    ]


async def _ms(work: Callable[[], Awaitable[SynthesizedSpeech | bytes]]) -> float:
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    for row in asyncio.run(run(quick=False)):
        print(row)
