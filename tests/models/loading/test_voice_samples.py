"""Samples of voices: the text's language, one synthesis, bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from config.errors import ModelError
from models.loading.voice_samples import MAX_SAMPLE_S, MAX_WAITING, REST, VoiceSamples, sample_text
from models.protocols import SynthesizedSpeech, TextToSpeech, VoiceSettings
from models.remote.wav import decode_wav
from models.tts.espeak.text_to_speech import EspeakTextToSpeech


class Slow(TextToSpeech):
    """Speaks `seconds` of sound once `go` is set."""

    name = "slow"

    def __init__(self, seconds: int = 1) -> None:
        self.go = asyncio.Event()
        self.began = asyncio.Event()
        self.seconds = seconds
        self.spoken: list[str] = []

    def voices(self) -> Sequence[str]:
        return ("slow/one",)

    def language_of(self, voice: str) -> str | None:
        return "de-AT"

    async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        self.spoken.append(text)
        self.began.set()
        await self.go.wait()
        return SynthesizedSpeech(text, np.ones(self.seconds * settings.rate, np.int16), settings.rate)


async def test_a_real_voice_speaks_at_its_own_rate(espeak: EspeakTextToSpeech) -> None:
    wav = await VoiceSamples().wav(espeak, "espeak-ng/de", 22050)
    assert int.from_bytes(wav[24:28], "little") == 22050
    assert np.abs(decode_wav(wav, 22050)).max() > 1000


async def test_requests_at_once_share_one_synthesis_in_the_voices_language() -> None:
    voice, samples = Slow(), VoiceSamples()
    voice.go.set()
    first, second = await asyncio.gather(*(samples.wav(voice, "slow/one", 8000) for _ in range(2)))
    assert first == second
    assert voice.spoken == [sample_text("de")] != [sample_text("en")]


def test_a_language_without_a_text_of_its_own_reads_figures() -> None:
    assert sample_text("vi") == "1, 2, 3, 4, 5, 6, 7, 8, 9, 10."
    assert sample_text(None) == sample_text("en-GB")


async def test_a_voice_that_hangs_is_given_up() -> None:
    with pytest.raises(ModelError, match=r"slow/one gave no sound within 0\.01 s"):
        await VoiceSamples(timeout_s=0.01).wav(Slow(), "slow/one", 8000)


@pytest.mark.parametrize(("seconds", "left"), [(MAX_SAMPLE_S + 5, MAX_SAMPLE_S), (0, None)])
async def test_a_long_sample_is_cut_and_an_empty_one_is_an_error(seconds: int, left: int | None) -> None:
    voice = Slow(seconds)
    voice.go.set()
    if left is None:
        with pytest.raises(ModelError, match="no sound"):
            await VoiceSamples().wav(voice, "slow/one", 8000)
    else:
        assert len(decode_wav(await VoiceSamples().wav(voice, "slow/one", 8000), 8000)) == left * 8000


async def test_a_synthesizer_rests_between_samples() -> None:
    """Three times as long as the first sample took, so that calls keep most of its time."""
    voice, samples, loop = Slow(), VoiceSamples(), asyncio.get_running_loop()
    first = asyncio.create_task(samples.wav(voice, "a", 8000))
    await voice.began.wait()
    began = loop.time()
    await asyncio.sleep(0.05)
    voice.go.set()
    await first
    took = loop.time() - began
    await samples.wav(voice, "b", 8000)
    assert loop.time() - began >= (1 + REST) * took * 0.9


async def test_a_voice_that_hangs_does_not_delay_those_of_others() -> None:
    hanging, voice, samples = Slow(), Slow(), VoiceSamples()
    voice.go.set()
    waiting = asyncio.create_task(samples.wav(hanging, "a", 8000))
    await hanging.began.wait()
    assert await samples.wav(voice, "b", 8000)
    waiting.cancel()


async def test_requests_beyond_the_limit_are_rejected_at_once() -> None:
    voice, samples = Slow(), VoiceSamples()
    waiting = [asyncio.create_task(samples.wav(voice, str(n), 8000)) for n in range(MAX_WAITING)]
    await voice.began.wait()
    with pytest.raises(ModelError, match="wait already"):
        await samples.wav(voice, "one more", 8000)
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert voice.spoken == [sample_text("de")], "one at a time"
    voice.go.set()
    assert await samples.wav(voice, "one more", 8000)


async def test_the_least_recently_used_samples_are_evicted() -> None:
    voice, samples = Slow(), VoiceSamples(limit=40_000)
    voice.go.set()
    for name in ("a", "b", "a", "c", "a", "b"):
        await samples.wav(voice, name, 8000)
    assert len(voice.spoken) == 4, "a stays; b is evicted for c"
