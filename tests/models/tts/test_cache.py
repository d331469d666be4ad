"""The speech cache: synthesized speech is shared by all calls, and never synthesized twice at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from config.errors import ModelError
from models.protocols import SynthesizedSpeech, VoiceSettings
from models.tts.cache import CachingTextToSpeech, SpeechCache, SpeechOrigin
from models.tts.espeak.text_to_speech import EspeakTextToSpeech
from models.tts.flite.text_to_speech import FliteTextToSpeech

SETTINGS = VoiceSettings("slow/one", 1.0, 0.5, 8000)


class SlowTts:
    """Synthesizes when `gate` is set; counts requests and cancellations."""

    name = "slow"

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.requests: list[str] = []
        self.cancelled = 0
        self.error: Exception | None = None

    def voices(self) -> Sequence[str]:
        return ("slow/one",)

    def language_of(self, voice: str) -> str | None:
        return None

    async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        self.requests.append(text)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error:
            raise self.error
        return SynthesizedSpeech(text, np.zeros(1200, np.int16), settings.rate)


async def let_tasks_run() -> None:
    """Let the started tasks run up to where they wait."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_the_least_recently_used_is_evicted_and_the_size_stays_within_the_limit() -> None:
    cache = SpeechCache(limit=10_000)
    for name in ("one", "two", "three", "four"):
        cache.put(name, SETTINGS, SynthesizedSpeech(name, np.zeros(1200, np.int16), 8000))
        cache.get("one", SETTINGS)
    cache.put("five", SETTINGS, SynthesizedSpeech("five", np.zeros(1200, np.int16), 8000))
    assert cache.get("one", SETTINGS) is not None and cache.get("two", SETTINGS) is None
    assert cache.size == 9600


async def test_a_phrase_that_two_calls_need_at_once_is_synthesized_once() -> None:
    origins: list[SpeechOrigin] = []
    voice, cache = SlowTts(), SpeechCache(on_use=origins.append)
    calls = [asyncio.create_task(CachingTextToSpeech(voice, cache).synthesize("Hello.", SETTINGS)) for _ in range(3)]
    await let_tasks_run()
    voice.gate.set()
    speeches = await asyncio.gather(*calls)
    assert voice.requests == ["Hello."] and speeches[0] is speeches[1] is speeches[2]
    assert await CachingTextToSpeech(voice, cache).synthesize("Hello.", SETTINGS) is speeches[0]
    assert origins == ["shared", "shared", "made", "cache"]


@pytest.mark.parametrize(
    "other", [replace(SETTINGS, speed=1.2), replace(SETTINGS, stability=1), replace(SETTINGS, rate=16000)]
)
async def test_a_phrase_with_other_settings_is_another_entry(other: VoiceSettings) -> None:
    voice, cache = SlowTts(), SpeechCache()
    voice.gate.set()
    first = await cache.get_or_synthesize(voice, "Hello.", SETTINGS)
    assert await cache.get_or_synthesize(voice, "Hello.", other) is not first


async def test_a_cancelled_call_leaves_the_synthesis_to_the_other() -> None:
    voice, cache = SlowTts(), SpeechCache()
    first, second = (asyncio.create_task(cache.get_or_synthesize(voice, "Hello.", SETTINGS)) for _ in range(2))
    await let_tasks_run()
    first.cancel()
    await let_tasks_run()
    voice.gate.set()
    assert (await second).text == "Hello." and first.cancelled() and voice.cancelled == 0


async def test_an_abandoned_synthesis_is_cancelled_and_started_anew_on_demand() -> None:
    voice, cache = SlowTts(), SpeechCache()
    first = asyncio.create_task(cache.get_or_synthesize(voice, "Hello.", SETTINGS))
    await let_tasks_run()
    first.cancel()
    again = asyncio.create_task(asyncio.wait_for(cache.get_or_synthesize(voice, "Hello.", SETTINGS), 5))
    await let_tasks_run()
    voice.gate.set()
    assert (await again).text == "Hello."
    assert voice.cancelled == 1 and voice.requests == ["Hello.", "Hello."]


async def test_an_error_reaches_all_waiting_calls_and_is_not_cached() -> None:
    voice, cache = SlowTts(), SpeechCache()
    voice.error = ModelError("hoarse")
    calls = [asyncio.create_task(cache.get_or_synthesize(voice, "Hello.", SETTINGS)) for _ in range(2)]
    await let_tasks_run()
    voice.gate.set()
    assert await asyncio.gather(*calls, return_exceptions=True) == [voice.error, voice.error]
    voice.error = None
    assert (await cache.get_or_synthesize(voice, "Hello.", SETTINGS)).text == "Hello."


async def test_one_cache_serves_flite_and_espeak(flite: FliteTextToSpeech, espeak: EspeakTextToSpeech) -> None:
    origins: list[SpeechOrigin] = []
    cache = SpeechCache(on_use=origins.append)
    both = [(CachingTextToSpeech(flite, cache), "flite/slt"), (CachingTextToSpeech(espeak, cache), "espeak-ng/de")]
    for _ in range(2):
        for voice, name in both:
            assert name in voice.voices()
            assert len((await voice.synthesize("Hello.", VoiceSettings(name, 1.0, 0.5, 8000))).samples) > 2000
    assert origins == ["made", "made", "cache", "cache"]
